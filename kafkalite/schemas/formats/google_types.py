"""The types of google/type/*.proto that Confluent's registry and its clients have built in: their fields, as lines of a .proto file.

The package google.protobuf has only google/protobuf/*.proto.
"""

from __future__ import annotations

from collections.abc import Mapping

DIRECTORY = "google/type/"
#: Name of a file -> what it imports of google/protobuf, and its types.
FILES: Mapping[str, tuple[str, str]] = {
    "calendar_period": (
        "",
        (
            "enum CalendarPeriod { CALENDAR_PERIOD_UNSPECIFIED = 0; DAY = 1; WEEK = 2; FORTNIGHT = 3; MONTH = 4; QUARTER = 5; "
            "HALF = 6; YEAR = 7; }"
        ),
    ),
    "color": (
        "wrappers",
        "message Color { float red = 1; float green = 2; float blue = 3; google.protobuf.FloatValue alpha = 4; }",
    ),
    "date": ("", "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }"),
    "datetime": (
        "duration",
        (
            "message DateTime { int32 year = 1; int32 month = 2; int32 day = 3; int32 hours = 4; int32 minutes = 5; "
            "int32 seconds = 6; int32 nanos = 7; "
            "oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; } } "
            "message TimeZone { string id = 1; string version = 2; }"
        ),
    ),
    "dayofweek": (
        "",
        (
            "enum DayOfWeek { DAY_OF_WEEK_UNSPECIFIED = 0; MONDAY = 1; TUESDAY = 2; WEDNESDAY = 3; THURSDAY = 4; FRIDAY = 5; "
            "SATURDAY = 6; SUNDAY = 7; }"
        ),
    ),
    "decimal": ("", "message Decimal { string value = 1; }"),
    "expr": (
        "",
        "message Expr { string expression = 1; string title = 2; string description = 3; string location = 4; }",
    ),
    "fraction": ("", "message Fraction { int64 numerator = 1; int64 denominator = 2; }"),
    "interval": (
        "timestamp",
        "message Interval { google.protobuf.Timestamp start_time = 1; google.protobuf.Timestamp end_time = 2; }",
    ),
    "latlng": ("", "message LatLng { double latitude = 1; double longitude = 2; }"),
    "money": ("", "message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }"),
    "month": (
        "",
        (
            "enum Month { MONTH_UNSPECIFIED = 0; JANUARY = 1; FEBRUARY = 2; MARCH = 3; APRIL = 4; MAY = 5; JUNE = 6; JULY = 7; "
            "AUGUST = 8; SEPTEMBER = 9; OCTOBER = 10; NOVEMBER = 11; DECEMBER = 12; }"
        ),
    ),
    "phone_number": (
        "",
        (
            "message PhoneNumber { message ShortCode { string region_code = 1; string number = 2; } "
            "oneof kind { string e164_number = 1; ShortCode short_code = 2; } string extension = 3; }"
        ),
    ),
    "postal_address": (
        "",
        (
            "message PostalAddress { int32 revision = 1; string region_code = 2; string language_code = 3; string postal_code = 4; "
            "string sorting_code = 5; string administrative_area = 6; string locality = 7; string sublocality = 8; "
            "repeated string address_lines = 9; repeated string recipients = 10; string organization = 11; }"
        ),
    ),
    "quaternion": ("", "message Quaternion { double x = 1; double y = 2; double z = 3; double w = 4; }"),
    "timeofday": ("", "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }"),
}


def text_of(name: str) -> str | None:
    """A .proto file by its whole name; None: there is no such file."""
    if not name.startswith(DIRECTORY):
        return None
    found = FILES.get(name.removeprefix(DIRECTORY).removesuffix(".proto")) if name.endswith(".proto") else None
    if found is None:
        return None
    imported, types = found
    line = f'import "google/protobuf/{imported}.proto"; ' if imported else ""
    return f'syntax = "proto3"; package google.type; {line}{types}'
