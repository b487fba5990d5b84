"""Wire tables: ACLs and quotas (notation: `kafkalite.protocol.schema`)."""

TABLE = """
DescribeAclsRequest 0-3 2+ 29
  resource_type_filter int8 0+
  resource_name_filter string 0+ ?0+
  pattern_type_filter int8 1+ =3
  principal_filter string 0+ ?0+
  host_filter string 0+ ?0+
  operation int8 0+
  permission_type int8 0+

DescribeAclsResponse 0-3 2+ 29
  throttle_time_ms int32 0+
  error_code int16 0+
  error_message string 0+ ?0+ =null
  resources []DescribeAclsResource 0+
    resource_type int8 0+
    resource_name string 0+
    pattern_type int8 1+ =3
    acls []AclDescription 0+
      principal string 0+
      host string 0+
      operation int8 0+
      permission_type int8 0+

CreateAclsRequest 0-3 2+ 30
  creations []AclCreation 0+
    resource_type int8 0+
    resource_name string 0+
    resource_pattern_type int8 1+ =3
    principal string 0+
    host string 0+
    operation int8 0+
    permission_type int8 0+

CreateAclsResponse 0-3 2+ 30
  throttle_time_ms int32 0+
  results []AclCreationResult 0+
    error_code int16 0+
    error_message string 0+ ?0+ =null

DeleteAclsRequest 0-3 2+ 31
  filters []DeleteAclsFilter 0+
    resource_type_filter int8 0+
    resource_name_filter string 0+ ?0+
    pattern_type_filter int8 1+ =3
    principal_filter string 0+ ?0+
    host_filter string 0+ ?0+
    operation int8 0+
    permission_type int8 0+

DeleteAclsResponse 0-3 2+ 31
  throttle_time_ms int32 0+
  filter_results []DeleteAclsFilterResult 0+
    error_code int16 0+
    error_message string 0+ ?0+ =null
    matching_acls []DeleteAclsMatchingAcl 0+
      error_code int16 0+
      error_message string 0+ ?0+ =null
      resource_type int8 0+
      resource_name string 0+
      pattern_type int8 1+ =3
      principal string 0+
      host string 0+
      operation int8 0+
      permission_type int8 0+

DescribeClientQuotasRequest 0-1 1+ 48
  components []ComponentData 0+
    entity_type string 0+
    match_type int8 0+
    match string 0+ ?0+
  strict bool 0+

DescribeClientQuotasResponse 0-1 1+ 48
  throttle_time_ms int32 0+
  error_code int16 0+
  error_message string 0+ ?0+ =null
  entries []EntryData 0+ ?0+
    entity []EntityData 0+
      entity_type string 0+
      entity_name string 0+ ?0+
    values []ValueData 0+
      key string 0+
      value float64 0+

AlterClientQuotasRequest 0-1 1+ 49
  entries []EntryData 0+
    entity []EntityData 0+
      entity_type string 0+
      entity_name string 0+ ?0+
    ops []OpData 0+
      key string 0+
      value float64 0+
      remove bool 0+
  validate_only bool 0+

AlterClientQuotasResponse 0-1 1+ 49
  throttle_time_ms int32 0+
  entries []EntryData 0+
    error_code int16 0+
    error_message string 0+ ?0+ =null
    entity []EntityData 0+
      entity_type string 0+
      entity_name string 0+ ?0+
"""
