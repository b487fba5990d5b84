"""Wire tables: metrics that clients send (KIP-714; notation: `kafkalite.protocol.schema`)."""

TABLE = """
GetTelemetrySubscriptionsRequest 0 0+ 71
  client_instance_id uuid 0+

GetTelemetrySubscriptionsResponse 0 0+ 71
  throttle_time_ms int32 0+
  error_code int16 0+
  client_instance_id uuid 0+
  subscription_id int32 0+
  accepted_compression_types []int8 0+
  push_interval_ms int32 0+
  telemetry_max_bytes int32 0+
  delta_temporality bool 0+
  requested_metrics []string 0+

PushTelemetryRequest 0 0+ 72
  client_instance_id uuid 0+
  subscription_id int32 0+
  terminating bool 0+
  compression_type int8 0+
  metrics bytes 0+

PushTelemetryResponse 0 0+ 72
  throttle_time_ms int32 0+
  error_code int16 0+
"""
