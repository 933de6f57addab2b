# SPDX-License-Identifier: MIT
"""Chat templates for models whose files have none."""

from __future__ import annotations

__all__ = ["BUILTIN", "BUILTIN_TEMPLATES", "BY_MARK"]

# Each writes a system message, then users and assistants in any order, and says what it cannot.
_CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' -%}
{%- generation -%}{{ message.content + '<|im_end|>' }}{%- endgeneration -%}
{%- else -%}
{{ message.content + '<|im_end|>' }}
{%- endif -%}
{{ '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""
_LLAMA2 = """\
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = '<<SYS>>\\n' + message.content + '\\n<</SYS>>\\n\\n' -%}
{%- elif message.role == 'user' -%}
{{ bos_token + '[INST] ' + ns.system + message.content.strip() + ' [/INST]' }}
{%- set ns.system = '' -%}
{%- elif message.role == 'assistant' -%}
{%- generation -%}{{ ' ' + message.content.strip() + ' ' + eos_token }}{%- endgeneration -%}
{%- else -%}
{{ raise_exception('llama2 has no role ' + message.role) }}
{%- endif -%}
{%- endfor -%}
"""
_LLAMA3 = """\
{{- bos_token -}}
{%- for message in messages -%}
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
{%- if message.role == 'assistant' -%}
{%- generation -%}{{ message.content.strip() + '<|eot_id|>' }}{%- endgeneration -%}
{%- else -%}
{{ message.content.strip() + '<|eot_id|>' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif -%}
"""
_MISTRAL = """\
{{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = message.content + '\\n\\n' -%}
{%- elif message.role == 'user' -%}
{{ '[INST] ' + ns.system + message.content + ' [/INST]' }}
{%- set ns.system = '' -%}
{%- elif message.role == 'assistant' -%}
{%- generation -%}{{ ' ' + message.content.strip() + eos_token }}{%- endgeneration -%}
{%- else -%}
{{ raise_exception('mistral has no role ' + message.role) }}
{%- endif -%}
{%- endfor -%}
"""
_GEMMA = """\
{{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = message.content.strip() + '\\n\\n' -%}
{%- elif message.role == 'assistant' -%}
{{ '<start_of_turn>model\\n' }}
{%- generation -%}{{ message.content.strip() + '<end_of_turn>' }}{%- endgeneration -%}
{{ '\\n' }}
{%- else -%}
{{ '<start_of_turn>' + message.role + '\\n' + ns.system + message.content.strip() }}
{{- '<end_of_turn>\\n' }}
{%- set ns.system = '' -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}
"""
_PHI3 = """\
{%- for message in messages -%}
{{ '<|' + message.role + '|>\\n' }}
{%- if message.role == 'assistant' -%}
{%- generation -%}{{ message.content + '<|end|>' }}{%- endgeneration -%}
{%- else -%}
{{ message.content + '<|end|>' }}
{%- endif -%}
{{ '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}
"""
_ZEPHYR = """\
{%- for message in messages -%}
{{ '<|' + message.role + '|>\\n' }}
{%- if message.role == 'assistant' -%}
{%- generation -%}{{ message.content + eos_token }}{%- endgeneration -%}
{%- else -%}
{{ message.content + eos_token }}
{%- endif -%}
{{ '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}
"""
_VICUNA = """\
{{- bos_token -}}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{{ message.content + '\\n\\n' }}
{%- elif message.role == 'user' -%}
{{ 'USER: ' + message.content + '\\n' }}
{%- elif message.role == 'assistant' -%}
{{ 'ASSISTANT:' }}
{%- generation -%}{{ ' ' + message.content + eos_token }}{%- endgeneration -%}
{{ '\\n' }}
{%- else -%}
{{ raise_exception('vicuna has no role ' + message.role) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ 'ASSISTANT:' }}{%- endif -%}
"""
_ALPACA = """\
{{- bos_token -}}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{{ message.content + '\\n\\n' }}
{%- elif message.role == 'user' -%}
{{ '### Instruction:\\n' + message.content + '\\n\\n' }}
{%- elif message.role == 'assistant' -%}
{{ '### Response:\\n' }}
{%- generation -%}{{ message.content + eos_token }}{%- endgeneration -%}
{{ '\\n\\n' }}
{%- else -%}
{{ raise_exception('alpaca has no role ' + message.role) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '### Response:\\n' }}{%- endif -%}
"""

BUILTIN: dict[str, str] = {
    "chatml": _CHATML,
    "llama2": _LLAMA2,
    "llama3": _LLAMA3,
    "mistral": _MISTRAL,
    "gemma": _GEMMA,
    "phi3": _PHI3,
    "zephyr": _ZEPHYR,
    "vicuna": _VICUNA,
    "alpaca": _ALPACA,
}
BUILTIN_TEMPLATES = tuple(BUILTIN)
"""The names of the chat templates of this package."""
BY_MARK = {
    "<|im_end|>": "chatml",
    "<|eot_id|>": "llama3",
    "<end_of_turn>": "gemma",
    "<|end|>": "phi3",
}
"""The template for a model without one, by a token of its vocabulary."""
