"""Wire table of kafkalite's own API (notation: `kafkalite.protocol.schema`; messages: `kafkalite.extension`)."""

TABLE = """
ExtensionRequest 0 0+ 20000
  kind string 0+
  body bytes 0+

ExtensionResponse 0 0+ 20000
  throttle_time_ms int32 0+
  error_code int16 0+
  error_message string 0+ ?0+ =null
  body bytes 0+ ?0+ =null
"""
