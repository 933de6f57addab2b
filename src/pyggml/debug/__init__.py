# SPDX-License-Identifier: MIT
"""Profiles, anomaly detection and the machine's peaks."""

from .anomaly import detect_anomaly
from .bars import progress
from .profiler import OpRecord, OpSummary, Peaks, Profile, profile
from .roofline import measure_peaks

__all__ = [
    "OpRecord",
    "OpSummary",
    "Peaks",
    "Profile",
    "detect_anomaly",
    "measure_peaks",
    "profile",
    "progress",
]
