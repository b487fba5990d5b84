"""Errors of the REST API, with Confluent's codes."""

from __future__ import annotations

from kafkalite.errors import KafkaliteError


class RegistryError(KafkaliteError):
    """`code`: the `error_code` of the response; its first three digits are the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found() -> RegistryError:
    return RegistryError(40403, "Schema not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40406, f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    )


def no_compatibility(subject: str) -> RegistryError:
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_mode(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def invalid_schema(reason: str) -> RegistryError:
    return RegistryError(42201, f"Invalid schema: {reason}")


def no_reference(subject: str, version: int) -> RegistryError:
    return invalid_schema(f'No schema reference found for subject "{subject}" and version {version}')


def invalid_version(text: str) -> RegistryError:
    return RegistryError(
        42202,
        f"The specified version '{text}' is not a valid version id. Allowed values are between [1, 2^31-1] and the"
        ' string "latest"',
    )


def not_permitted(reason: str) -> RegistryError:
    return RegistryError(42205, reason)


def is_referenced(subject: str, version: int) -> RegistryError:
    return RegistryError(42206, f"One or more references exist to the schema {{subject={subject},version={version}}}")


def incompatible(messages: list[str]) -> RegistryError:
    return RegistryError(409, f"Schema being registered is incompatible with an earlier schema; {'; '.join(messages)}")


def no_room() -> RegistryError:
    return not_permitted("the schemas of this topic, and those of all topics, take too much memory")
