"""Authentication and authorization: principals, credentials, rules and limits. Pure; effects are elsewhere."""
