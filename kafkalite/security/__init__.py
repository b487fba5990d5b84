"""Who somebody is and what they may do: principals, credentials, rules and limits. Pure; effects are elsewhere."""
