#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Proof on the hardware, in one command on a machine with nvcc, CMake, ninja and no network:
#
#   scripts/gpu_check.sh pack                here: wheels and the patched tree into build/gpu, for the way
#   scripts/gpu_check.sh run [STAGE ...]     there: results in $OUT (build/gpu/out), summary in results.json
#   scripts/gpu_check.sh rehearse            here: the stages that a CPU can do, on a tiny model
#
# Stages: build ops grad sanitize train. Each has a time limit, and one that fails does not end the others.
set -u -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 2
gpu=$root/build/gpu
out=${OUT:-$gpu/out}
python=${PYTHON:-python3}
jobs=$(nproc)
# the version of Python there, for which wheels are packed
target=${TARGET_PYTHON:-3.12}

# the ops whose kernels the patches add or change
ops=NORM_BACK,L2_NORM_BACK,GELU_BACK,UNARY_BACK,GLU_BACK,CROSS_ENTROPY_ROWS,CROSS_ENTROPY_ROWS_BACK,CROSS_ENTROPY_LOSS_BACK
ops=$ops,ROPE,ROPE_BACK,DROPOUT,SUM_SQR,CUMSUM_BACK,GET_ROWS_BACK,OUT_PROD,REPEAT_BACK,ACC,POOL_1D_BACK,POOL_2D_BACK,IM2COL_BACK,IM2COL_3D_BACK,SOFT_MAX_BACK
ops=$ops,CONV_2D_DW_BACK,UPSCALE_BACK,MUL_MAT_ID_BACK,FLASH_ATTN_EXT_BACK,OPT_STEP_ADAMW,OPT_STEP_SGD
# the ops whose gradients are made of them
grads=NORM,L2_NORM,GELU,GELU_ERF,GELU_QUICK,TANH,SIGMOID,SWIGLU,GEGLU,CROSS_ENTROPY_ROWS,DROPOUT,CUMSUM,GET_ROWS,OUT_PROD,MUL_MAT
grads=$grads,POOL_1D,POOL_2D,IM2COL,IM2COL_3D,CONV_2D_DW,UPSCALE,MUL_MAT_ID,FLASH_ATTN_EXT,SOFT_MAX,ROPE,RMS_NORM,GROUP_NORM

say() { printf '== %s\n' "$*"; }

# stage NAME SECONDS COMMAND...: its output to NAME.log, its status and time to stages.jsonl
stage() {
    local name=$1 limit=$2 start status
    shift 2
    say "$name"
    start=$(date +%s)
    OUT=$out venv=${venv:-} timeout "$limit" "${BASH_SOURCE[0]}" do "$@" >"$out/$name.log" 2>&1
    status=$?
    printf '{"stage": "%s", "status": %d, "seconds": %d}\n' "$name" "$status" $(($(date +%s) - start)) >>"$out/stages.jsonl"
    tail -n 3 "$out/$name.log"
    say "$name: status $status, $(($(date +%s) - start)) s"
    return $status
}

pack() {
    mkdir -p "$gpu/wheels" || exit 2
    "$python" scripts/vendor.py sync || exit 1
    # what building and importing need; PyTorch is there already
    rm -rf "$gpu/wheels" "$gpu/ggml" && mkdir -p "$gpu/wheels"
    "$python" -m pip download -q -d "$gpu/wheels" --only-binary=:all: --python-version "$target" --implementation cp \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
        scikit-build-core cffi numpy pathspec packaging setuptools wheel || exit 1
    mkdir -p "$gpu/ggml" && cp -r vendor/ggml/. "$gpu/ggml/"
    local size
    size=$(($(du -sm "$gpu/wheels" "$gpu/ggml" | cut -f1 | paste -sd+)))
    say "build/gpu: $size MiB of wheels for Python $target and of ggml; with this checkout it must be below 64"
    [ "$size" -lt 64 ]
}

architecture() {
    nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d ' .'
}

environment() {
    nvidia-smi
    nvcc --version
    cmake --version
    ninja --version
    "$python" -c 'import torch; print("torch", torch.__version__, torch.version.cuda)'
}

build() {
    [ -d vendor/ggml ] || cp -r "$gpu/ggml" vendor/ggml || return 1
    "$python" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])' "$target" || {
        say "the wheels are for Python $target: pack with TARGET_PYTHON as $("$python" -V), or set PYTHON"
        return 1
    }
    "$python" -m venv "$gpu/venv" || return 1
    # PyTorch may be in an environment itself, which one made from it would not see
    "$python" -c 'import site; print(*site.getsitepackages(), sep="\n")' \
        >"$("$gpu/venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/there.pth"
    "$gpu/venv/bin/python" -c 'import torch' || return 1
    "$gpu/venv/bin/python" -m pip install -q --no-index --find-links "$gpu/wheels" scikit-build-core cffi numpy setuptools || return 1
    local arch cmake
    arch=$(architecture) || return 1
    cmake=(-Ccmake.define.GGML_CUDA=ON "-Ccmake.define.CMAKE_CUDA_ARCHITECTURES=$arch" -Ccmake.define.GGML_CUDA_FA_QUANTS=f16-f16
        -Ccmake.define.PYGGML_BUILD_GGML_TESTS=ON)
    CMAKE_BUILD_PARALLEL_LEVEL=$jobs "$gpu/venv/bin/python" -m pip install -q --no-index --no-build-isolation --no-deps \
        "-Cbuild-dir=$gpu/cmake" "${cmake[@]}" -e . || return 1
    cmake --build "$gpu/cmake" --target ggml-tests -j "$jobs" || return 1
    "$gpu/venv/bin/python" -c 'import pyggml as pg; print(pg.devices())'
}

tests() { "$(find "$gpu/cmake" -name test-backend-ops -type f | head -n 1)" "$@"; }

sanitize() {
    local program tool status=0
    program=$(find "$gpu/cmake" -name test-backend-ops -type f | head -n 1)
    for tool in memcheck racecheck synccheck; do
        say "compute-sanitizer $tool"
        timeout 150 compute-sanitizer --tool "$tool" --error-exitcode 9 "$program" test -b CUDA0 -o "$ops" || status=$?
        timeout 30 compute-sanitizer --tool "$tool" --error-exitcode 9 "$program" test -b CUDA0 -o FLASH_ATTN_EXT -p prec_src || status=$?
    done
    return $status
}

# train FRAMEWORK PRECISION [more arguments]
train() {
    local framework=$1 precision=$2
    shift 2
    "${venv:-$gpu/venv/bin/python}" scripts/gpu_train.py "$framework" --precision "$precision" --weights "$out/weights.npz" "$@"
}

trainings() {
    local device=$1
    shift
    stage train-pyggml-f32 300 train pyggml f32 --device "$device" "$@"
    stage train-torch-f32 300 train torch f32 --device "$device" "$@"
    stage train-pyggml-bf16 300 train pyggml bf16 --device "$device" --profile "$@"
    stage train-torch-bf16 300 train torch bf16 --device "$device" "$@"
    [ "$device" = cpu ] || stage train-torch-bf16-compiled 300 train torch bf16 --device "$device" --compile "$@"
}

# logs and stages as one file, and the table by op
results() {
    "$python" - "$out" <<'PY'
import json, pathlib, re, sys

out = pathlib.Path(sys.argv[1])
stages = [json.loads(line) for line in (out / "stages.jsonl").read_text().splitlines()]
result = {"stages": stages, "training": [], "ops": {}}
ran = {stage["stage"] for stage in stages}  # other logs are an earlier run's
for path in sorted(out.glob("train-*.log")):
    if path.stem not in ran:
        continue
    lines = [line for line in path.read_text().splitlines() if line.startswith("{")]
    if lines:
        result["training"].append(json.loads(lines[-1]))
for path in (out / f"{name}.log" for name in ("ops", "attention", "products", "grad")):
    if path.stem in ran:
        text = re.sub(r"\x1b\[[0-9;]*m", "", path.read_text(errors="replace"))
        counts = {}
        for op, said in re.findall(r"^\s*(\w+)\(.*\): (OK|FAIL|not supported)", text, re.M):
            counts.setdefault(op, {}).setdefault(said, 0)
            counts[op][said] += 1
        result["ops"][path.stem] = counts
(out / "results.json").write_text(json.dumps(result, indent=1) + "\n")

for name, counts in result["ops"].items():
    bad = {op: c for op, c in counts.items() if set(c) != {"OK"}}
    print(f"{name}: {len(counts)} ops, not all OK: {bad or 'none'}")
for t in result["training"]:
    used = t.get("memory_used_bytes", 0) / 2**20
    first, last = t["losses"][0], t["losses"][-1]
    print(
        f"{t['framework']:16} {t['precision']:5} {t['step_ms']:9.1f} ms {t['tokens_per_s']:10.0f} tokens/s"
        f" {used:8.0f} MiB  loss {first:.4f} -> {last:.4f}"
    )
for op in next((t["ops"] for t in result["training"] if "ops" in t), []):
    print(f"  {op['op']:24} {op['calls']:5} {1e3 * op['seconds']:9.2f} ms {100 * op['share']:5.1f} %")
pairs = {}
for t in result["training"]:
    pairs.setdefault(t["precision"], {})[t["framework"]] = t["losses"]
for precision, by in pairs.items():
    if {"pyggml", "torch"} <= set(by):
        worst = max(abs(a - b) for a, b in zip(by["pyggml"], by["torch"]))
        print(f"{precision}: losses differ from PyTorch's by at most {worst:.2e}")
failed = [s["stage"] for s in stages if s["status"]]
print("failed:", ", ".join(failed) or "nothing")
sys.exit(1 if failed else 0)
PY
}

run() {
    mkdir -p "$out" && : >"$out/stages.jsonl"
    local wanted=("$@")
    [ ${#wanted[@]} -gt 0 ] || wanted=(build ops grad sanitize train)
    stage environment 60 environment
    local each
    for each in "${wanted[@]}"; do
        case $each in
            build) stage build 420 build ;;
            ops)
                stage ops 240 tests test -b CUDA0 -o "$ops"
                # of f32 sources; its other cases are ggml's kernels and thousands
                stage products 60 tests test -b CUDA0 -o MUL_MAT -p 'type_a=f32,type_b=f32'
                stage attention 60 tests test -b CUDA0 -o FLASH_ATTN_EXT -p prec_src
                ;;
            grad) stage grad 300 tests grad -b CUDA0 -o "$grads" ;;
            sanitize) stage sanitize 560 sanitize ;;
            train) trainings cuda:0 ;;
            *) echo "gpu_check: stages are build ops grad sanitize train; got $each" >&2; exit 2 ;;
        esac
    done
    results
}

rehearse() {
    out=$gpu/rehearsal
    mkdir -p "$out" && rm -f "$out"/* && : >"$out/stages.jsonl"
    venv=$python
    trainings cpu --size tiny --context 64 --batch 4 --steps 6 --warmup 1
    results
}

# timeout runs programs, not functions: it starts this script again for them
case ${1:-} in
    pack | run | rehearse) "$@" ;;
    do) shift && "$@" ;;
    *) sed -n '3,10p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
