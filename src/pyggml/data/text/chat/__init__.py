# SPDX-License-Identifier: MIT
"""Conversations: templates, files of chats, tokens with the answers marked."""

from .builtin import BUILTIN_TEMPLATES
from .chats import Chat, Chats, read_chats
from .encoding import ChatCounts, EncodedChats, encode_chats, encode_prompt, show_sample
from .formats import FORMATS
from .pieces import end_ids
from .preferences import (
    EncodedPreferences,
    Preferences,
    encode_preferences,
    read_preferences,
)
from .spans import Rendered
from .template import ChatTemplate

CHAT_FORMATS = tuple(FORMATS)
"""The names of the formats of rows that hold conversations."""

__all__ = [
    "BUILTIN_TEMPLATES",
    "CHAT_FORMATS",
    "Chat",
    "ChatCounts",
    "ChatTemplate",
    "Chats",
    "EncodedChats",
    "EncodedPreferences",
    "Preferences",
    "Rendered",
    "encode_chats",
    "encode_preferences",
    "encode_prompt",
    "end_ids",
    "read_chats",
    "read_preferences",
    "show_sample",
]
