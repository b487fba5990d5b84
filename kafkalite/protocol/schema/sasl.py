"""Wire tables: SASL and its users (notation: `kafkalite.protocol.schema`)."""

TABLE = """
SaslHandshakeRequest 0-1 none 17
  mechanism string 0+

SaslHandshakeResponse 0-1 none 17
  error_code int16 0+
  mechanisms []string 0+

SaslAuthenticateRequest 0-2 2+ 36
  auth_bytes bytes 0+

SaslAuthenticateResponse 0-2 2+ 36
  error_code int16 0+
  error_message string 0+ ?0+
  auth_bytes bytes 0+
  session_lifetime_ms int64 1+

DescribeUserScramCredentialsRequest 0 0+ 50
  users []UserName 0+ ?0+
    name string 0+

DescribeUserScramCredentialsResponse 0 0+ 50
  throttle_time_ms int32 0+
  error_code int16 0+
  error_message string 0+ ?0+
  results []DescribeUserScramCredentialsResult 0+
    user string 0+
    error_code int16 0+
    error_message string 0+ ?0+
    credential_infos []CredentialInfo 0+
      mechanism int8 0+
      iterations int32 0+

AlterUserScramCredentialsRequest 0 0+ 51
  deletions []ScramCredentialDeletion 0+
    name string 0+
    mechanism int8 0+
  upsertions []ScramCredentialUpsertion 0+
    name string 0+
    mechanism int8 0+
    iterations int32 0+
    salt bytes 0+
    salted_password bytes 0+

AlterUserScramCredentialsResponse 0 0+ 51
  throttle_time_ms int32 0+
  results []AlterUserScramCredentialsResult 0+
    user string 0+
    error_code int16 0+
    error_message string 0+ ?0+
"""
