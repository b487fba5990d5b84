"""The step of `bench.pipeline_run`'s second pipeline: copied beside its file, as a user's module would be."""

from __future__ import annotations

from typing import Any


def days(rows: Any) -> Any:
    """Flights once each, with the weather of their hour and airport, by day."""
    from pyspark.sql import functions as f

    flights = rows.where("_topic = 'flights'").select("n", "at", "origin", "delay").dropDuplicatesWithinWatermark(["n"])
    weather = rows.where("_topic = 'weather'").selectExpr("origin AS airport", "at AS hour", "temp")
    joined = flights.join(weather, f.expr("origin = airport AND at = hour"))
    windows = joined.groupBy(f.window("at", "1 day"), "origin").agg(
        f.count("n").alias("flights"),
        f.sum(f.coalesce("delay", f.lit(0))).alias("delay"),
        f.sum("temp").alias("temp"),
    )
    return windows.selectExpr("date_format(window.start, 'yyyy-MM-dd') AS day", "origin", "flights", "delay", "temp")
