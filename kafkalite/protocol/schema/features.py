"""Wire tables: features, brokers, and resources with configurations (notation: `kafkalite.protocol.schema`)."""

TABLE = """
UpdateFeaturesRequest 0-2 0+ 57
  timeout_ms int32 0+ =60000
  feature_updates []FeatureUpdateKey 0+
    feature string 0+
    max_version_level int16 0+
    allow_downgrade bool 0
    upgrade_type int8 1+ =1
  validate_only bool 1+ =false

UpdateFeaturesResponse 0-2 0+ 57
  throttle_time_ms int32 0+
  error_code int16 0+
  error_message string 0+ ?0+ =null
  results []UpdatableFeatureResult 0-1
    feature string 0+
    error_code int16 0+
    error_message string 0+ ?0+ =null

UnregisterBrokerRequest 0 0+ 64
  broker_id int32 0+

UnregisterBrokerResponse 0 0+ 64
  throttle_time_ms int32 0+
  error_code int16 0+
  error_message string 0+ ?0+ =null

ListConfigResourcesRequest 0-1 0+ 74
  resource_types []int8 1+

ListConfigResourcesResponse 0-1 0+ 74
  throttle_time_ms int32 0+
  error_code int16 0+
  config_resources []ConfigResource 0+
    resource_name string 0+
    resource_type int8 1+ =16
"""
