# SPDX-License-Identifier: MIT
"""Profiles, anomaly detection and the machine's peaks."""

__all__: list[str] = []
