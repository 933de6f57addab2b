# SPDX-License-Identifier: MIT
"""Write tests/torch_names.txt: the public names of PyTorch that a user may look for here.

A test asserts that each is there, or raises AttributeError with what to use instead. Needs
`torch`; `--check` compares and writes nothing.
"""

from __future__ import annotations

import re
import sys
import types

from generated_page import ROOT, write_or_check

PAGE = ROOT / "tests" / "torch_names.txt"

# Left out by rule, as no program that trains a network writes them: names of types of the
# compiler, of storages, of quantised, sparse and nested tensors, of kernels of one library, of
# symbolic shapes, of copies of views, and what a module imported for itself.
MACHINERY = re.compile(
    r"_.*|.*Storage(Base)?|.*Type|.*Quant.*|Q\w+Storage|(Script|Lite|Py|Sym|Disable|Serial|Deserial)\w+"
    r"|(AVG|SUM|AliasDb|AggregationType|Argument\w*|AwaitType|BenchmarkConfig|Block|BufferDict"
    r"|BenchmarkExecutionStats|CallStack|Capsule|Code|Compil\w+|Complete\w+|Concrete\w+|Deep\w+"
    r"|Dispatch\w+|ErrorReport|Event|Exclude\w+|ExecutionPlan|Fatal\w+|FileCheck|Function\w+"
    r"|Future|GradScaler|Gradient|Graph\w*|IOD\w+|Inferred\w+|JIT\w+|Lock\w+|Logger\w*|Node"
    r"|NoopLogger|OperatorInfo|PRIVATE_OPS|Accelerator\w+|Static\w+|Stream|Tag|Throughput\w+"
    r"|Tracing\w+|USE_\w+|Use|Value|Type|Module(Dict)?|Parameter\w*|OutOfMemoryError|DType"
    r"|TYPE_CHECKING|Any|Callable|Optional|Counter|Literal|Self|Supports\w+|TypedDict|TypeVar"
    r"|ParamSpec|Broadcasting\w+|GRID\w+|Scaling\w+|Swizzle\w+|EPOCH\w+|DF\w+|DataChunk"
    r"|(Iter|Map)DataPipe|UntypedStorage)"
    r"|(fbgemm|mkldnn|miopen|cudnn|native|quantize|quantized|fake_quantize|fused|sym|unsafe|per"
    r"|q|has|parse|import_ir|unify|profiler|choose_qparams)_\w+|batch_norm_\w+"
    r"|\w+_copy|.*sparse(?!_?$).*|\w+_sparse_|new_empty_strided|.*(ccol|crow|row|col)_indices|values|indices|.*_dense_?|dense_dim"
    r"|d?smm|h(s|sp)mm|sspaddmm|s(p|adda?)mm|spmm|saddmm|int_repr|qscheme|jagged|slice_inverse"
    r"|as_subclass|merge_type\w+|prepare_multi\w+|classproperty|compiled_with\w+|read_vitals"
    r"|alias_copy|cond|chalf|symeig|norm_except_dim|constant_pad_nd|convolution|empty_quantized"
    r"|embedding_renorm_|get_file_path|get_device(_module)?|hash_tensor|is_(distributed|storage)"
    r"|is_vulkan\w+|\w+_scatter|dequantize|i0_?|igammac?_?|boolean_dispatch|assert_int_or_pair"
    r"|\w*torch_function\w*|\w+_notes|annotations|bisect_right|cast|inf|override|partial|ref|wraps"
    r"|\w*valid\w*|functional_datapipe|guaranteed\w+|non_determ\w+|factory_kwargs|T_destination"
    r"|module_load|has_names|names|align_\w+|rename_?|refine_names|view_as_(real|complex)"
    r"|(is|set|get)_autocast\w+|autocast_\w+|clear_autocast\w+|(arc)?angle|e|pi|nan|newaxis"
)
IMPORTED = ("Optimizer", "Tensor")
CONSTANTS = ("inf", "nan", "pi", "e", "newaxis")


def names() -> list[str]:
    """Each place and name, such as `pg.acos`."""
    import torch
    from torch import nn, optim
    from torch.utils import data

    model = nn.Linear(2, 2)
    places = {
        "pg": torch, "x": torch.ones(2), "nn": nn, "F": nn.functional, "optim": optim,
        "schedules": optim.lr_scheduler, "init": nn.init, "data": data, "module": model,
        "optimizer": optim.SGD(model.parameters(), lr=0.1),
    }  # fmt: skip
    found = {f"pg.{name}" for name in CONSTANTS}
    for place, owner in places.items():
        for name in dir(owner):
            value = getattr(type(owner) if place == "x" else owner, name, None)
            if name in IMPORTED and place not in ("pg", "optim"):
                continue
            if isinstance(value, (types.ModuleType, torch.dtype)) or MACHINERY.fullmatch(name):
                continue
            found.add(f"{place}.{name}")
    attributes = {f"module.{name}" for name in model._parameters}
    return sorted(found - attributes)


def page() -> str:
    """The list's text."""
    import torch

    head = f"# Of torch {torch.__version__.partition('+')[0]}, by scripts/gen_torch_names.py.\n"
    return head + "".join(f"{name}\n" for name in names())


def main(argv: list[str] | None = None) -> int:
    """Write or compare the list."""
    return write_or_check(PAGE, page, "torch-names", __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
