#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Proof on the hardware, on a machine with nvcc, CMake, ninja and PyTorch, but without a network:
#
#   scripts/gpu_check.sh pack                here: wheels and the patched tree into build/gpu, for the way
#   scripts/gpu_check.sh compile [ARCH]      here: wheels and the compiled package instead, if nvcc is here
#   scripts/gpu_check.sh run [STAGE ...]     there: results.json and logs.tar.gz in $OUT (build/gpu/out)
#   scripts/gpu_check.sh rehearse            here: pack and run in a copy, without CUDA and without a network
#
# Stages: build train ops grad programs sanitize, or a part of one, such as train-torch-bf16; all if none is
# named. Each has a time limit, and one that fails does not end the others. A later call keeps what
# earlier ones have found (build/gpu/state) and replaces the stages that it runs again.
# LIMIT=580: seconds for the whole call; what no time is left for is not started.
# LIMIT_EACH=400: seconds for each stage, in place of its own limit.
set -u -o pipefail

self=$(realpath "${BASH_SOURCE[0]}")
root=${self%/scripts/*}
cd "$root" || exit 2
gpu=$root/build/gpu
state=$gpu/state
out=${OUT:-$gpu/out}
python=${PYTHON:-python3}
jobs=$(nproc)
# the version of Python there, for which wheels are packed
target=${TARGET_PYTHON:-3.12}
rehearsal=${REHEARSAL:-}
running=
for each in LIMIT LIMIT_EACH; do
    [[ ${!each:-0} =~ ^[0-9]+$ ]] || { echo "gpu_check: $each must be whole seconds; got ${!each}" >&2; exit 2; }
done
end=$((SECONDS + ${LIMIT:-1000000}))

# the ops whose kernels the patches add or change: tests/test_gpu_check.py looks them up in the patches
ops=NORM,NORM_BACK,SILU_BACK,L2_NORM_BACK,GELU_BACK,UNARY_BACK,GLU_BACK,CROSS_ENTROPY_ROWS,CROSS_ENTROPY_ROWS_BACK,CROSS_ENTROPY_LOSS_BACK
ops=$ops,ROPE,ROPE_BACK,DROPOUT,SUM_SQR,CUMSUM_BACK,GET_ROWS_BACK,OUT_PROD,REPEAT_BACK,ACC,SOFT_MAX_BACK,TANH,GELU,GEGLU
ops=$ops,MUL_MAT_ID_BACK,FLASH_ATTN_EXT_BACK,OPT_STEP_ADAMW,OPT_STEP_SGD,SOLVE_TRI
ops=$ops,RELU,STEP,SGN,HARDSIGMOID,LEAKY_RELU,CLAMP,SWIGLU_OAI,L2_NORM,ARGMAX
# those of which ggml has kernels for other sources: of f32 ones alone, the others are thousands
products=MUL_MAT
attention=FLASH_ATTN_EXT
# those whose gradient has a kernel of the patches that no case runs but that of the gradient
backward=POOL_1D,POOL_2D,IM2COL,IM2COL_3D,CONV_2D_DW,UPSCALE
# the ops whose gradients are made of all these
grads=NORM,L2_NORM,GELU,GELU_ERF,GELU_QUICK,TANH,SIGMOID,SWIGLU,GEGLU,CROSS_ENTROPY_ROWS,CROSS_ENTROPY_LOSS,DROPOUT,CUMSUM,GET_ROWS,OUT_PROD,MUL_MAT
grads=$grads,$backward,MUL_MAT_ID,FLASH_ATTN_EXT,SOFT_MAX,ROPE,RMS_NORM,GROUP_NORM,REGLU
# Those that take the most of the time, 2.6 of 3.5 million graphs, come last. MUL_MAT alone would take 7.4 million: of its
# cases those of each type and order of axes, with one column and with eight.
long=IM2COL_3D,SOFT_MAX,ROPE,RMS_NORM
few='gradient=|m=16,n=1,k=256,bs=\[[12],[12]\]|type_a=b?f(16|32),type_b=f32,m=16,n=(1|8),k=256'
# What is enough for a sanitizer, 37 thousand graphs of 600: of a shape of single digits, which is the first that is named.
small='^[^[]*\[[0-9],[0-9],[0-9],[0-9]\]|ne_input=\[10,10,3,1\],k0=3,k1=[13],s0=2,s1=2,p0=1,p1=1'
every=$ops,$products,$attention,$grads
# random programs of each of eight processes
programs=35

backend=CUDA0 device=cuda:0 build_limit=360 sanitizer=(compute-sanitizer) size=()
if [ -n "$rehearsal" ]; then
    # two cores, and no compute-sanitizer: in its place runs what it would have run
    backend=CPU device=cpu build_limit=3600 sanitizer=(bash "$self" part stand_in)
    programs=2
    ops=NORM_BACK,SUM_SQR,ACC backward=POOL_1D grads=NORM,POOL_1D,MUL_MAT long=POOL_1D few=gradient=
    size=(--size tiny --context 64 --batch 4 --steps 6 --warmup 1)
fi

# without OPS OTHERS
without() { tr , '\n' <<<"$1" | grep -vxFf <(tr , '\n' <<<"$2") | paste -sd , -; }

say() { printf '== %s\n' "$*"; }

report() { "$python" scripts/gpu_report.py "$state" "$out" "$@"; }

# Ended from outside: the stage ends, too, and what is known of it is written.
ended() {
    trap '' TERM INT HUP
    [ -z "$running" ] || kill "$running"
    report open
    exit 143
}

# stage NAME SECONDS OPS COMMAND...: output to NAME.log; OPS: those that must have run, or ''
stage() {
    local name=$1 limit=$2 of=$3 left=$((end - SECONDS - 5)) start status
    shift 3
    limit=${LIMIT_EACH:-$limit}
    ran+=("$name")
    if [ "$left" -lt 15 ]; then
        report skip "$name" "no time was left of LIMIT=$LIMIT"
        return
    fi
    [ "$limit" -lt "$left" ] || limit=$left
    case $name in
        environment | build | train-torch-*) ;;
        *) report built "$name" || return ;;
    esac
    say "$name, at most $limit s"
    report begin "$name" "$limit" ${of:+"$of"}
    start=$SECONDS
    # timeout runs programs, not functions: it starts this script again; waited for, so that a signal is heard
    timeout -k 10 "$limit" bash "$self" part "$@" >"$state/$name.log" 2>&1 &
    running=$!
    wait "$running"
    status=$?
    running=
    report end "$name" "$status" $((SECONDS - start))
}

# pack [DIRECTORY]
pack() {
    local to=${1:-$gpu}
    "$python" scripts/vendor.py sync || exit 1
    # what building and importing need; PyTorch is there already
    rm -rf "$to/compiled" "$to/ggml"
    wheels "$to" pip scikit-build-core cffi numpy pathspec packaging setuptools wheel
    mkdir -p "$to/ggml" && cp -a vendor/ggml/. "$to/ggml/" || exit 1
    weigh "$to/wheels" "$to/ggml"
}

# wheels DIRECTORY PACKAGE...: for the Python there
wheels() {
    local to=$1/wheels
    shift
    rm -rf "$to"
    mkdir -p "$to" || exit 2
    "$python" -m pip download -q -d "$to" --only-binary=:all: --python-version "$target" --implementation cp \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 "$@" || exit 1
}

# weigh DIRECTORY...: what travels with this checkout
weigh() {
    local size
    size=$({
        tree
        find "$@" -type f -print0
    } | du -cm --apparent-size --files0-from=- | tail -n 1 | cut -f1)
    say "$size MiB of ${*#"$gpu/"}, for Python $target, and of this checkout; it must be below 64"
    [ "$size" -lt 64 ]
}

# compile [ARCH]: what `build` makes there, made here for GPUs of this compute capability
compile() {
    local arch=${1:-90} work=$gpu/compiling to=$gpu/compiled major library link=-Wl,--no-as-needed
    # what most x86-64 servers since 2013 have: the CPU there is another one
    local cmake=(GGML_NATIVE=OFF PYGGML_BUILD_GGML_TESTS=ON GGML_CUDA=ON "CMAKE_CUDA_ARCHITECTURES=$arch")
    cmake+=(GGML_CUDA_FA_QUANTS=f16-f16 GGML_CUDA_NCCL=OFF "CMAKE_CUDA_FLAGS=-I$root/build/cublas")
    [[ $arch =~ ^[0-9]+$ ]] || { echo "gpu_check: compile takes a compute capability such as 90; got $arch" >&2; exit 2; }
    command -v nvcc >/dev/null || { echo "gpu_check: compile needs nvcc; without it, pack" >&2; exit 2; }
    "$python" scripts/vendor.py sync || exit 1
    "$python" scripts/cuda_compile.py --fetch || exit 1
    major=$(nvcc --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
    mkdir -p "$work" && rm -rf "$to" || exit 2
    # Of cuBLAS and of the driver's library, linking a library needs the names alone.
    for library in cuda.so.1 "cublas.so.$major" "cublasLt.so.$major"; do
        c++ -shared -fPIC -x c /dev/null "-Wl,-soname,lib$library" -o "$work/lib${library%%.*}.so" || exit 1
    done
    cmake+=("CUDA_cuda_driver_LIBRARY=$work/libcuda.so" "CMAKE_SHARED_LINKER_FLAGS=$link")
    cmake+=("CUDA_cublas_LIBRARY=$work/libcublas.so" "CUDA_cublasLt_LIBRARY=$work/libcublasLt.so")
    cmake+=("CMAKE_EXE_LINKER_FLAGS=$link,--allow-shlib-undefined")
    if command -v ccache >/dev/null; then
        for library in C CXX CUDA; do cmake+=("CMAKE_${library}_COMPILER_LAUNCHER=ccache"); done
    fi
    CMAKE_GENERATOR=Ninja CMAKE_BUILD_PARALLEL_LEVEL=$jobs "$python" -m pip wheel -v --no-build-isolation --no-deps -w "$work/wheel" \
        "-Cbuild-dir=$work/cmake" "${cmake[@]/#/-Ccmake.define.}" . >"$work/log" 2>&1 || { tail -n 30 "$work/log" >&2; exit 1; }
    cmake --build "$work/cmake" --target ggml-tests -j "$jobs" >>"$work/log" 2>&1 || { tail -n 30 "$work/log" >&2; exit 1; }
    mkdir "$to" && cp "$work"/wheel/pyggml-*.whl "$work"/cmake/bin/test-backend-ops vendor/ggml/.vendor-stamp.json "$to" || exit 1
    rm -rf "$gpu/ggml" "$work/wheel"
    wheels "$gpu" pip cffi && weigh "$gpu/compiled" "$gpu/wheels"
}

# the files of the checkout that travel
tree() { git ls-files -coz --exclude-standard | while IFS= read -r -d '' path; do [ -f "$path" ] && printf '%s\0' "$path"; done; }

environment() {
    local status=0
    "$python" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])' "$target" || {
        say "the wheels are for Python $target: pack with TARGET_PYTHON as $("$python" -V), or set PYTHON"
        status=1
    }
    "$python" - <<'PY' || status=1
import os, sys, sysconfig

header = os.path.join(sysconfig.get_path("include"), "Python.h")
print(sys.version, sys.executable, "headers:", header)
if not os.path.exists(header):
    sys.exit(f"{header} is not there: the binding cannot be compiled")
PY
    cmake --version || status=1
    ninja --version || status=1
    c++ --version || status=1
    "$python" - "$rehearsal" <<'PY' || status=1
import sys, torch

print("torch", torch.__version__, torch.version.cuda, torch.cuda.is_available())
if not sys.argv[1] and not torch.cuda.is_available():
    sys.exit("PyTorch sees no GPU: there is nothing to compare with")
PY
    [ -n "$rehearsal" ] && return $status
    nvidia-smi || status=1
    nvcc --version || status=1
    compute-sanitizer --version || say "no compute-sanitizer: the stages sanitize-* will fail"
    cuda_options
    return $status
}

# The toolkit's folder: nvcc may be a script that calls the toolkit's own.
toolkit() { nvcc --dryrun -x cu -c /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p'; }

# The folder of cuBLAS in PyTorch's packages.
packaged_cublas() {
    "$python" -c '
import importlib.util, pathlib
for place in importlib.util.find_spec("nvidia").submodule_search_locations:
    for header in sorted(pathlib.Path(place).glob("*/include/cublas_v2.h")):
        print(header.parents[1])' | head -n 1
}

# CMake leaves the toolkit's folder out of what a library searches, and a loader need not know it
libraries() {
    local found=()
    [ -n "$rehearsal" ] && return
    mapfile -t found < <({
        find -L "$(toolkit)" -name 'libcudart.so.*' -printf '%h\n'
        [ -d "$gpu/cublas" ] || [ -d "$gpu/compiled" ] && printf '%s/lib\n' "$(packaged_cublas)"
        # where the compiled test program finds the package's libraries
        [ -d "$gpu/compiled" ] && dirname "$(find "$gpu/venv/lib" -name 'libpyggml-base.so')"
    } 2>/dev/null | sort -u)
    export LD_LIBRARY_PATH
    LD_LIBRARY_PATH=$(IFS=: && echo "${found[*]}")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# The definitions that CMake needs for this machine, one in a line. cuBLAS may be PyTorch's alone, and
# the driver's library without the stub that one links with.
cuda_options() {
    local arch found folder library
    arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d ' .')
    [[ $arch =~ ^[0-9]+$ ]] || { echo "nvidia-smi tells no compute capability: $arch" >&2; return 1; }
    # a library that the backend needs, such as the driver's where there is but a stub of it, need not be known to the linker
    printf '%s\n' CMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined
    printf '%s\n' GGML_CUDA=ON "CMAKE_CUDA_ARCHITECTURES=$arch" GGML_CUDA_FA_QUANTS=f16-f16 GGML_CUDA_NCCL=OFF
    found=$(find -L "$(toolkit)" \( -name libcublas.so -o -name libcuda.so \) 2>/dev/null)
    if ! grep -q libcublas <<<"$found" && ! ldconfig -p | grep -q 'libcublas\.so '; then
        folder=$(packaged_cublas)
        [ -n "$folder" ] || { echo "no cuBLAS, neither in $(toolkit) nor in PyTorch's packages" >&2; return 1; }
        # its folder may have headers of another toolkit besides
        rm -rf "$gpu/cublas"
        mkdir -p "$gpu/cublas" && ln -sf "$folder"/include/cublas*.h "$gpu/cublas/" || return 1
        printf '%s\n' "CMAKE_CUDA_FLAGS=-I$gpu/cublas"
        for library in cublas cublasLt; do
            printf '%s\n' "CUDA_${library}_LIBRARY=$(find "$folder/lib" -name "lib$library.so*" | head -n 1)"
        done
    fi
    if ! grep -q libcuda.so <<<"$found" && ! ldconfig -p | grep -q 'libcuda\.so '; then
        library=$({
            ldconfig -p | sed -n 's/.*libcuda\.so\.1 .*=> //p'
            find -L /usr/local/nvidia -name libcuda.so.1 2>/dev/null
        } | head -n 1)
        if [ -n "$library" ]; then
            printf '%s\n' "CUDA_cuda_driver_LIBRARY=$library"
        else
            echo GGML_CUDA_NO_VMM=ON
        fi
    fi
}

build() {
    local options=GGML_CUDA=OFF cmake=() option wheel each
    # what is configured there for pip, such as an index, constraints or another folder, is not meant for this
    for each in $(compgen -e PIP_); do unset "$each"; done
    export PIP_CONFIG_FILE=/dev/null
    if [ -d "$gpu/compiled" ]; then
        # what stands there is what was compiled here
        mkdir -p vendor/ggml && cp "$gpu/compiled/.vendor-stamp.json" vendor/ggml/ || return 1
    elif [ -d "$gpu/ggml" ] && ! cmp -s {"$gpu",vendor}/ggml/.vendor-stamp.json; then
        # by a rename: a half that was copied when the call ended is not taken for the tree
        rm -rf vendor/ggml vendor/.ggml-part
        cp -a "$gpu/ggml" vendor/.ggml-part && mv vendor/.ggml-part vendor/ggml || return 1
    fi
    "$python" -c '
import pathlib, sys
sys.path.insert(0, "scripts")
from vendor import Project
here = Project(pathlib.Path())
sys.exit(here.tree_stamp() != here.stamp())' || {
        echo "error: vendor/ggml is not there or is of other patches than this checkout: pack again"
        return 1
    }
    if [ -z "$rehearsal" ] && [ ! -d "$gpu/compiled" ]; then
        options=$(cuda_options) || { echo "this machine lacks what is told above"; return 1; }
    fi
    for option in $options PYGGML_BUILD_GGML_TESTS=ON CMAKE_INSTALL_RPATH_USE_LINK_PATH=ON; do
        cmake+=("-Ccmake.define.$option")
    done
    printf '%s\n' "${cmake[@]}"
    # Without what an environment may lack, pip of its own among it; PyTorch stays where it is.
    rm -rf "$gpu/venv"
    "$python" -m venv --without-pip "$gpu/venv" || return 1
    for wheel in "$gpu"/wheels/pip-*.whl; do
        "$gpu/venv/bin/python" "$wheel/pip" install -q --no-index --find-links "$gpu/wheels" pip || return 1
    done
    if [ -d "$gpu/compiled" ]; then
        # NumPy is PyTorch's: it would be a quarter of what travels
        "$python" -c '
import pathlib, sys, numpy
for site in pathlib.Path(sys.argv[1]).glob("lib/python*/site-packages"):
    (site / "numpy.pth").write_text(f"{pathlib.Path(numpy.__file__).parents[1]}\n")' "$gpu/venv" || return 1
        "$gpu/venv/bin/python" -m pip install -q --no-index --find-links "$gpu/wheels" cffi || return 1
        "$gpu/venv/bin/python" -m pip install -q --no-index --no-deps "$gpu"/compiled/pyggml-*.whl || return 1
        started
        return
    fi
    "$gpu/venv/bin/python" -m pip install -q --no-index --find-links "$gpu/wheels" scikit-build-core cffi numpy setuptools || return 1
    CMAKE_GENERATOR=Ninja CMAKE_BUILD_PARALLEL_LEVEL=$jobs "$gpu/venv/bin/python" -m pip install -v --no-index --no-build-isolation --no-deps \
        "-Cbuild-dir=$gpu/cmake" "${cmake[@]}" -e . || return 1
    cmake --build "$gpu/cmake" --target ggml-tests -j "$jobs" || return 1
    started
}

# that the package which was built is imported, and has the device
started() {
    libraries
    "$gpu/venv/bin/python" -c '
import sys, pyggml as pg
from pyggml import _ggml
print(_ggml.__file__, *pg.devices(), sep="\n")
assert _ggml.__file__.startswith(sys.prefix), "not the one that was built"
assert pg.device(sys.argv[1])' "$device"
}

program() {
    local found
    found=$(find "$gpu/compiled" "$gpu/cmake" -name test-backend-ops -type f 2>/dev/null | head -n 1)
    [ -n "$found" ] || { echo "nothing is built: run the stage build first" >&2; return 1; }
    printf '%s\n' "$found"
}

# whole COMMAND...: 0 if it reached its last line, else 1; its own status in $status
whole() {
    local printed=$gpu/printed.txt it
    # tee outlives the end of the time: what the program says as it ends would end it instead
    "$@" 2>&1 | (trap '' TERM && exec tee "$printed")
    status=${PIPESTATUS[0]}
    grep -q 'backends passed$' "$printed"
    it=$?
    rm -f "$printed"
    return $it
}

# each_op OPS COMMAND...: all of them by one program; if it dies, then each by one of its own, so that
# an op that ends a program does not end the others. scripts/gpu_judge.py reads the lines with ==.
each_op() {
    local of=$1 op status first
    shift
    whole "$@" -o "$of" && return "$status"
    first=$status
    [ "$first" -ne 0 ] || first=1
    printf '\n== died with status %s\n' "$first"
    [ "$of" != "${of#*,}" ] || return "$first"
    for op in ${of//,/ }; do
        printf '== %s by itself\n' "$op"
        whole "$@" -o "$op" || printf '\n== died with status %s\n' "$status"
    done
    return "$first"
}

# tests OPS [arguments of the cases' program]
tests() {
    local of=$1 it
    shift
    it=$(program) || return 1
    libraries
    each_op "$of" "$it" "$@"
}

# That each op has a case. Those of a gradient are the op's own, where ggml has one of it.
cases() {
    local it op status=0
    it=$(program) || return 1
    "$it" support -b CPU -o "$every" >"$state/cases.txt" || return 1
    for op in ${every//,/ }; do
        grep -q "^  $op(" "$state/cases.txt" || { echo "no case of $op"; status=1; }
    done
    return $status
}

# sanitize TOOL STAGE OPS [arguments of the cases' program]
sanitize() {
    local tool=$1 told=$state/$2 of=$3 it
    it=$(program) || return 1
    libraries
    shift 3
    each_op "$of" sanitized "$it" "$@"
}

# sanitized COMMAND... -o OPS, for sanitize: what $tool tells is in a file of its own for each program,
# STAGE.txt or STAGE.OP.txt, else its reports lie between a case and what came of it
sanitized() {
    local log=$told.txt
    [ "${!#}" = "$of" ] || log=$told.${!#}.txt
    # exec: whole waits for this process, and a tool may take its time to end
    exec "${sanitizer[@]}" --tool "$tool" --error-exitcode 9 --log-file "$log" "$@"
}

# in the place of compute-sanitizer: its arguments, its log, and no check
stand_in() {
    local log=
    while [ "${1#--}" != "$1" ]; do
        [ "$1" = --log-file ] && log=$2
        shift 2
    done
    printf '========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n' >"$log"
    "$@"
}

# Random programs of ops, which the device must compute as PyTorch does in float64, where PyTorch is seen from here.
programs() {
    local each pids=() status=0 told=$state/programs
    [ -x "$gpu/venv/bin/python" ] || { echo "nothing is built: run the stage build first"; return 1; }
    libraries
    for each in {0..7}; do
        "$gpu/venv/bin/python" -m tests.fuzz.programs "$programs" $((each * programs)) --device "$device" >"$told.$each.log" 2>&1 &
        pids+=($!)
    done
    for each in "${pids[@]}"; do wait "$each" || status=1; done
    grep -hvE '^seed [0-9]+$' "$told".?.log
    return $status
}

# train FRAMEWORK [more arguments]; PyTorch runs in its own environment, which may lack pyggml
train() {
    local framework=$1 with=$gpu/venv/bin/python
    shift
    if [ "$framework" = torch ]; then
        with=$python
    elif [ ! -x "$with" ]; then
        echo "nothing is built: run the stage build first"
        return 1
    else
        libraries
    fi
    "$with" scripts/gpu_train.py "$framework" --device "$device" --weights "$gpu/weights.npz" ${size[@]+"${size[@]}"} "$@"
}

# one NAME: a stage
one() {
    local each=$1 tool of
    case $each in
        environment) stage "$each" 60 '' environment ;;
        build) stage "$each" "$build_limit" '' build ;;
        ops) stage "$each" 240 "$ops" tests "$ops" test -b "$backend" ;;
        products) stage "$each" 60 "$products" tests "$products" test -b "$backend" -p 'type_a=f32,type_b=f32|may round' ;;
        attention) stage "$each" 60 "$attention" tests "$attention" test -b "$backend" -p prec_src ;;
        grad)
            of=$(without "$grads" "$products,$long")
            stage "$each" 120 "$of" tests "$of" grad -b "$backend"
            ;;
        products-grad) stage "$each" 60 "$products" tests "$products" grad -b "$backend" -p "$few" ;;
        long-grad) stage "$each" 200 "$long" tests "$long" grad -b "$backend" ;;
        programs) stage "$each" 120 '' programs ;;
        cases) stage "$each" 60 '' cases ;;
        sanitize-*-attention)
            tool=${each#sanitize-}
            stage "$each" 30 "$attention" sanitize "${tool%-attention}" "$each" "$attention" test -b "$backend" -p prec_src
            ;;
        sanitize-*-grad)
            tool=${each#sanitize-}
            stage "$each" 40 "$backward" sanitize "${tool%-grad}" "$each" "$backward" grad -b "$backend" -p "$small"
            ;;
        sanitize-*) stage "$each" 110 "$ops" sanitize "${each#sanitize-}" "$each" "$ops" test -b "$backend" ;;
        train-weights) stage "$each" 60 '' train weights ;;
        train-pyggml-f32) stage "$each" 90 '' train pyggml --precision f32 ;;
        train-torch-f32) stage "$each" 90 '' train torch --precision f32 ;;
        train-pyggml-tf32) stage "$each" 90 '' train pyggml --precision tf32 ;;
        train-torch-tf32) stage "$each" 90 '' train torch --precision tf32 ;;
        train-pyggml-bf16) stage "$each" 90 '' train pyggml --precision bf16 --profile --trace "$state/$each.trace.json" ;;
        train-torch-bf16) stage "$each" 90 '' train torch --precision bf16 ;;
        train-torch-bf16-compiled) stage "$each" 150 '' train torch --precision bf16 --compile ;;
        train-pyggml-qlora) stage "$each" 150 '' train qlora --profile --trace "$state/$each.trace.json" ;;
        train-pyggml-bf16-plain) stage "$each" 90 '' train pyggml --precision bf16 --attention plain ;;
        *) return 2 ;;
    esac
}

# the stages of a name
parts() {
    case $1 in
        ops) echo ${rehearsal:+cases} ops products attention ;;
        sanitize) echo sanitize-{memcheck,racecheck,synccheck}{-attention,-grad,} ;;
        train) echo train-{weights,pyggml-bf16,torch-bf16,pyggml-f32,torch-f32,torch-bf16-compiled,pyggml-bf16-plain,pyggml-qlora} ;;
        grad) echo grad products-grad long-grad ;;
        build | cases | programs | products | attention | products-grad | long-grad) echo "$1" ;;
        sanitize-memcheck | sanitize-racecheck | sanitize-synccheck) echo "$1" ;;
        sanitize-memcheck-attention | sanitize-racecheck-attention | sanitize-synccheck-attention) echo "$1" ;;
        sanitize-memcheck-grad | sanitize-racecheck-grad | sanitize-synccheck-grad) echo "$1" ;;
        train-weights | train-pyggml-qlora | train-pyggml-bf16-plain | train-torch-bf16-compiled) echo "$1" ;;
        train-pyggml-f32 | train-torch-f32 | train-pyggml-bf16 | train-torch-bf16) echo "$1" ;;
        train-pyggml-tf32 | train-torch-tf32) echo "$1" ;; # not of `train`
        *)
            echo "gpu_check: stages are build, train, ops, grad, programs and sanitize and their parts; got $1" >&2
            return 2
            ;;
    esac
}

run() {
    local each found wanted=() ran=()
    [ $# -gt 0 ] || set -- build train ops grad programs sanitize
    for each in "$@"; do
        found=$(parts "$each") || exit 2
        # shellcheck disable=SC2206 # words
        wanted+=($found)
    done
    mkdir -p "$state" "$out" && report open || exit 2
    trap ended TERM INT HUP
    for each in environment "${wanted[@]}"; do one "$each"; done
    report show "${ran[@]}"
}

rehearse() {
    local there=$gpu/rehearsal status alone=() without=(-u PYTHONPATH) each
    mkdir -p "$there/build/gpu"
    # a copy, as what travels is; what was built in an earlier rehearsal is kept, as there
    find "$there" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
    rm -rf "$there"/build/gpu/{state,out,weights.npz}
    target=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    pack "$there/build/gpu" || exit 1
    tree | tar --null -T - -c | tar -x -C "$there" || exit 1
    if unshare -rn true 2>/dev/null; then
        alone=(unshare -rn)
    else
        say "the rehearsal cannot be kept from the network here"
    fi
    # nor from a folder of wheels that pip is configured for
    for each in $(compgen -e PIP_); do without+=(-u "$each"); done
    env "${without[@]}" PIP_CONFIG_FILE=/dev/null PYTHON="$(command -v "$python")" TARGET_PYTHON="$target" \
        REHEARSAL=1 OUT="$there/build/gpu/out" ${alone[@]+"${alone[@]}"} bash "$there/scripts/gpu_check.sh" run "$@"
    status=$?
    say "what came of it: $there/build/gpu/out"
    return $status
}

case ${1:-} in
    pack | compile | run | rehearse) "$@" ;;
    part)
        # when the time is over: not before the program has ended, or timeout would not see what is left to kill
        trap 'exit 143' TERM
        shift && "$@"
        ;;
    *) sed -n '3,15p' "$self" >&2; exit 2 ;;
esac
