#!/bin/sh
# Tests and figures on a machine with a GPU, from the folder that `cargo xtask gpu-bundle` makes. It needs a Python with
# PyTorch and a driver; neither cargo nor a network.
#
#   sh run.sh            tests, then figures
#   sh run.sh tests      each way on each number of ranks, faults, back ends
#   sh run.sh bench      the table of figures
#   sh run.sh msd        a mixed-scale dense network on 2048 x 1024 x 1024 voxels; by name only, it needs 20 GiB of disk
#
# Variables: PYTHON (python3), WAYS (nccl shared staged), RANKS (2 4), FILES (all in tests/ranks), KILLS (3),
# LIMIT (seconds of one job of tests, 240), BENCH_LIMIT (seconds of the figures, 900), LOGS (logs beside this file),
# MSD (more words for msd, such as --precision half; see volume/msd.py),
# MPS (1; 0 leaves the multi-process service out), SLOW (1 also runs the tests that take minutes).
set -u
here=$(cd "$(dirname "$0")" && pwd)
what=${1:-all}
case $what in all | tests | bench | msd) ;; *)
    echo "error: run.sh knows all, tests, bench and msd, not \`$what\`" >&2
    exit 2
    ;;
esac
PYTHON=${PYTHON:-python3} WAYS=${WAYS:-nccl shared staged} RANKS=${RANKS:-2 4} KILLS=${KILLS:-3} MPS=${MPS:-1}
LIMIT=${LIMIT:-240} BENCH_LIMIT=${BENCH_LIMIT:-900} LOGS=${LOGS:-$here/logs} SLOW=${SLOW:-0} FILES=${FILES:-}
MSD=${MSD:-}
mkdir -p "$LOGS"
rm -f "$LOGS/summary"

"$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || {
    echo "error: $PYTHON has no PyTorch that finds a GPU" >&2
    echo "hint: PYTHON=/path/of/python sh run.sh; \`nvidia-smi\` shows what the driver finds" >&2
    exit 1
}

# An environment that sees the packages of PYTHON, which may be an environment itself, and has the bundle's wheels.
environment=$(mktemp -d)/environment
"$PYTHON" -m venv --system-site-packages --without-pip "$environment" || exit 1
packages=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$PYTHON" -c 'import sysconfig, os, torch
print(sysconfig.get_path("purelib")); print(os.path.dirname(torch.__path__[0]))' >"$packages/borrowed.pth"
python=$environment/bin/python
if ! "$PYTHON" -m pip --python "$python" install --quiet --no-index --no-deps "$here"/wheels/*.whl; then
    echo "pip is not there; the wheels are unpacked instead"
    for wheel in "$here"/wheels/*.whl; do "$python" -m zipfile -e "$wheel" "$packages" || exit 1; done
    printf '#!/bin/sh\nexec "%s" -m sirtaki "$@"\n' "$python" >"$environment/bin/sirtaki"
    chmod +x "$environment/bin/sirtaki"
fi
sirtaki=$environment/bin/sirtaki
export PATH="$environment/bin:$PATH" PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1

mps_is_on=0
begin_mps() {
    [ "$MPS" = 1 ] && command -v nvidia-cuda-mps-control >/dev/null || return 0
    CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d) CUDA_MPS_LOG_DIRECTORY=$LOGS
    export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    if nvidia-cuda-mps-control -d; then mps_is_on=1; else unset CUDA_MPS_PIPE_DIRECTORY; fi
}
end_mps() {
    [ $mps_is_on = 1 ] || return 0
    echo quit | timeout 20 nvidia-cuda-mps-control >/dev/null 2>&1
    unset CUDA_MPS_PIPE_DIRECTORY
    mps_is_on=0
}
trap 'end_mps; rm -rf "$(dirname "$environment")"' EXIT
trap 'exit 130' INT TERM

# job NAME SECONDS COMMAND...: runs it with a log and a limit, and notes how it went.
job() {
    name=$1 limit=$2
    shift 2
    begin=$(date +%s)
    timeout -k 20 "$limit" "$@" >"$LOGS/$name.log" 2>&1
    code=$?
    seconds=$(($(date +%s) - begin))
    case $code in 0) result=passed ;; 124 | 137) result=TIMEOUT ;; *) result=FAILED ;; esac
    # Every rank says it; one is enough.
    said=$(grep -aoE '[0-9]+ (passed|failed|error)[^=]* in [0-9.]+s' "$LOGS/$name.log" | tail -n 1)
    printf '%-16s %-8s %4s s  %s\n' "$name" "$result" "$seconds" "$said" | tee -a "$LOGS/summary"
    [ $code = 0 ] || grep -aE '^(\[[0-9]+\] )?(FAILED|ERROR|E  |error:)|no longer together' "$LOGS/$name.log" | head -n 15
}

# ranks NUMBER COMMAND...: as a job of so many ranks. NCCL refuses ranks of one host on one GPU, so each gets a host id.
pytest="$python -m pytest -q --no-header -p no:cacheprovider -rfE --tb=short"
ranks() {
    number=$1
    shift
    set -- "$sirtaki" run -n "$number" --oversubscribe --gpus none --hang-timeout 60 -- sh "$here/rank.sh" "$@"
    echo "$@"
}

tests() {
    files=${FILES:-$here/tests/ranks}
    begin_mps
    for way in $WAYS; do
        export SIRTAKI_GPU=$way
        for number in $RANKS; do
            # shellcheck disable=SC2046,SC2086 # commands of several words
            job "$way-$number" "$LIMIT" $(ranks "$number" $pytest $files)
            # shellcheck disable=SC2046,SC2086
            [ "$SLOW" = 0 ] || job "$way-$number-slow" "$LIMIT" $(ranks "$number" $pytest --slow $files)
        done
    done
    # A client that is killed can take the service with it.
    end_mps
    for way in $WAYS; do
        export SIRTAKI_GPU=$way
        # shellcheck disable=SC2086
        job "$way-jobs" "$LIMIT" $pytest -s --repeat "$KILLS" "$here/tests/test_faults.py" "$here/tests/test_back_ends.py" \
            "$here/tests/test_seeing.py"
    done
    unset SIRTAKI_GPU
}

bench() {
    begin_mps
    job bench "$BENCH_LIMIT" "$python" "$here/bench/bench.py" --output "$LOGS/figures.json"
    end_mps
    cat "$LOGS/bench.log"
}

msd() {
    # shellcheck disable=SC2086 # several words
    job msd "$BENCH_LIMIT" "$python" "$here/volume/msd.py" --output "$LOGS/msd.json" $MSD
    cat "$LOGS/msd.log"
}

case $what in all | tests) tests ;; esac
case $what in all | bench) bench ;; esac
case $what in msd) msd ;; esac
printf '\n%-16s %-8s %6s\n' job result time
cat "$LOGS/summary"
! grep -qE 'FAILED|TIMEOUT' "$LOGS/summary"
