#!/bin/sh
# NCCL refuses several ranks of one host on one GPU; with host ids of their own it lets them talk over sockets.
NCCL_HOSTID="rank-$SIRTAKI_RANK" exec "$@"
