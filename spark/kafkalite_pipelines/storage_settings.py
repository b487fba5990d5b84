"""Names of `storage` of a Delta table. deltalake passes over those that it does not know. Pure.

Source: the crate object_store (AmazonS3ConfigKey, AzureConfigKey, GoogleConfigKey, ClientConfigKey) and deltalake's own names.
"""

from __future__ import annotations

import difflib

from kafkalite_pipelines.definition import DeltaSink, Pipeline

#: Prefix that a store's names may have -> its names.
_KNOWN = {
    "aws_": (
        "access_key_id secret_access_key session_token token default_region region bucket bucket_name endpoint endpoint_url profile "
        "imdsv1_fallback metadata_endpoint virtual_hosted_style_request unsigned_payload checksum_algorithm skip_signature "
        "container_credentials_relative_uri container_credentials_full_uri container_authorization_token_file "
        "web_identity_token_file role_arn role_session_name endpoint_url_sts endpoint_url_dynamodb copy_if_not_exists conditional_put "
        "disable_tagging s3_express request_payer server_side_encryption sse_kms_key_id sse_bucket_key_enabled "
        "sse_customer_key_base64 allow_http s3_locking_provider s3_allow_unsafe_rename force_credential_load"
    ),
    "azure_storage_": (
        "account_name account_key access_key master_key client_id client_secret tenant_id authority_id authority_host sas_key "
        "sas_token token bearer_token use_emulator"
    ),
    "azure_": (
        "client_id client_secret tenant_id authority_id authority_host endpoint use_fabric_endpoint use_azure_cli msi_endpoint "
        "identity_endpoint object_id msi_resource_id federated_token_file container_name skip_signature disable_tagging"
    ),
    "google_": "service_account service_account_path service_account_key bucket bucket_name application_credentials skip_signature",
    "": (
        "allow_http allow_invalid_certificates connect_timeout timeout user_agent http1_only http2_only proxy_url "
        "proxy_ca_certificate proxy_excludes pool_idle_timeout pool_max_idle_per_host randomize_addresses max_retries retry_timeout "
        "mount_allow_unsafe_rename delta_dynamo_table_name"
    ),
}  # fmt: skip
_NAMES = [f"{prefix}{name}" for prefix, names in _KNOWN.items() for name in names.split()]
_SHORT = [name for names in _KNOWN.values() for name in names.split()]


def wrong_storage(pipeline: Pipeline) -> list[str]:
    """A line for each name that is almost a known one. Others may be known to newer versions."""
    return [
        f"sinks[{number}].storage.{key}: deltalake knows no such setting; did you mean {meant}?"
        for number, sink in enumerate(pipeline.sinks, 1)
        if isinstance(sink, DeltaSink)
        for key in sink.storage
        if (meant := _meant(key.lower())) is not None
    ]


def _meant(key: str) -> str | None:
    close = [name for names in (_NAMES, _SHORT) for name in difflib.get_close_matches(key, names, 1, 0.85)]
    return close[0] if close and key not in close else None
