"""Wire tables: delegation tokens (notation: `kafkalite.protocol.schema`)."""

TABLE = """
CreateDelegationTokenRequest 1-3 2+ 38
  owner_principal_type string 3+ ?3+
  owner_principal_name string 3+ ?3+
  renewers []CreatableRenewers 0+
    principal_type string 0+
    principal_name string 0+
  max_lifetime_ms int64 0+

CreateDelegationTokenResponse 1-3 2+ 38
  error_code int16 0+
  principal_type string 0+
  principal_name string 0+
  token_requester_principal_type string 3+
  token_requester_principal_name string 3+
  issue_timestamp_ms int64 0+
  expiry_timestamp_ms int64 0+
  max_timestamp_ms int64 0+
  token_id string 0+
  hmac bytes 0+
  throttle_time_ms int32 0+

RenewDelegationTokenRequest 1-2 2+ 39
  hmac bytes 0+
  renew_period_ms int64 0+

RenewDelegationTokenResponse 1-2 2+ 39
  error_code int16 0+
  expiry_timestamp_ms int64 0+
  throttle_time_ms int32 0+

ExpireDelegationTokenRequest 1-2 2+ 40
  hmac bytes 0+
  expiry_time_period_ms int64 0+

ExpireDelegationTokenResponse 1-2 2+ 40
  error_code int16 0+
  expiry_timestamp_ms int64 0+
  throttle_time_ms int32 0+

DescribeDelegationTokenRequest 1-3 2+ 41
  owners []DescribeDelegationTokenOwner 0+ ?0+
    principal_type string 0+
    principal_name string 0+

DescribeDelegationTokenResponse 1-3 2+ 41
  error_code int16 0+
  tokens []DescribedDelegationToken 0+
    principal_type string 0+
    principal_name string 0+
    token_requester_principal_type string 3+
    token_requester_principal_name string 3+
    issue_timestamp int64 0+
    expiry_timestamp int64 0+
    max_timestamp int64 0+
    token_id string 0+
    hmac bytes 0+
    renewers []DescribedDelegationTokenRenewer 0+
      principal_type string 0+
      principal_name string 0+
  throttle_time_ms int32 0+
"""
