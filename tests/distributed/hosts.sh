#!/bin/sh
# SPDX-License-Identifier: MIT
# Start a command on a "host" that is a network namespace, as ssh does on a machine: the agent that
# mpiexec calls, by PRTE_MCA_plm_ssh_agent. The host's name, by which mpiexec and pyggml tell hosts
# apart, is that of a UTS namespace.
while [ "${1#-}" != "$1" ]; do shift; done # options of ssh
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0" && exec sh -c "$*"' "$host" "$@"
