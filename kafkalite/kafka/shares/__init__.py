"""Fetching for share groups (KIP-932): sessions, acquired records, answers."""
