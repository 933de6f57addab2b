# The verbs of daily work; `just --list` tells them. Each is a plain command: see CONTRIBUTING.md.
set positional-arguments

python := env("PYTHON", "python")

# fetch and patch ggml
vendor:
    {{python}} scripts/vendor.py sync

# editable install for development; again after a change of patches, headers or CMake files
build: vendor
    {{python}} -m pip install --no-build-isolation -Cbuild-dir=build/dev -e ".[dev]"

# src/pyggml/backend/_cdef.h from ggml's headers
cdef: vendor
    {{python}} scripts/gen_cdef.py

# the fast tests; arguments go to pytest
test *args:
    {{python}} -m pytest "$@"

# the rows of the package, modules per folder, import cycles
layers:
    {{python}} scripts/layers.py

# all tests
test-all *args:
    {{python}} -m pytest -m "" "$@"

# formatting, lint, types, spelling
lint:
    ruff format --check .
    ruff check .
    mypy
    codespell

# the documentation as a site, into site/; a broken link or a public name without a docstring fails
docs *args:
    NO_MKDOCS_2_WARNING=1 {{python}} -m mkdocs build --strict "$@"

# docs/reference/ops.md from the case table and ggml's sources
ops-doc: vendor
    {{python}} scripts/gen_ops_doc.py

# docs/reference/options.md from the options of the recipes
options-doc:
    {{python}} scripts/gen_options_doc.py

# docs/guide/pytorch.md from the calls that are tested against PyTorch
torch-doc:
    {{python}} scripts/gen_torch_page.py

# tests/torch_names.txt from the names of PyTorch, which must be installed
torch-names:
    {{python}} scripts/gen_torch_names.py

# tests/tensors/torch_numbers.npz: what PyTorch, which must be installed, computes of the tested calls
torch-numbers:
    {{python}} scripts/gen_torch_numbers.py

# the series applies exactly and exports to the same bytes; the binding follows it
series-check: vendor
    {{python}} scripts/vendor.py check
    {{python}} scripts/gen_cdef.py --check

# series-check, then each prefix builds and passes its patch's tests, but what passed before; --from N, --to N, --only N
patches-check *args: series-check
    {{python}} scripts/patches_check.py "$@"

# the op table on a build with a sanitizer: address (and undefined behaviour) or thread
sanitize kind *args:
    {{python}} scripts/sanitize.py "$@"

# the kernels' tests on a build for older CPUs: avx2 (no AVX-512) or plain x86-64
older-cpu kind *args: vendor
    {{python}} scripts/older_cpu.py "$@"

# ggml's own op tests on the patched tree; arguments go to test-backend-ops
ggml-tests *args: vendor
    cmake -S . -B build/ggml-tests -G Ninja -DCMAKE_BUILD_TYPE=Release \
        -DPYGGML_BUILD_GGML_TESTS=ON -DPython_EXECUTABLE="$({{python}} -c 'import sys; print(sys.executable)')"
    cmake --build build/ggml-tests --target ggml-tests
    build/ggml-tests/bin/test-backend-ops "$@"

# ggml's own check of every gradient, on the patched tree
grad *args:
    {{just_executable()}} ggml-tests grad -b CPU "$@"

# every demo, until one fails
demos:
    set -e; for demo in demos/*.py; do \
        [ -e "$demo" ] || { echo "no demos here"; continue; }; \
        echo "== $demo"; {{python}} "$demo"; done

# every benchmark
bench:
    set -e; for bench in benchmarks/*.py; do \
        [ -e "$bench" ] || { echo "no benchmarks here"; continue; }; \
        echo "== $bench"; {{python}} "$bench"; done

# fuzzers of the readers, the packed product and the backward, MINUTES altogether; a finding fails
fuzz minutes="10" *args: vendor
    {{python}} fuzz/run.py build
    {{python}} fuzz/run.py run "$@"
