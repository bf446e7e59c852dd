"""What the Python peers share: the orders they serve and the tensors of a training step.

Orders arrive over the Unix socket named by SIRTAKI_BENCH_SOCKET, one JSON object per line.
"""

import json
import os
import socket
import time

WARM_UP = 2


def timed(call, iterations):
    """Microseconds of each call, after some that do not count."""
    micros = []
    for iteration in range(WARM_UP + iterations):
        start = time.perf_counter_ns()
        call()
        if iteration >= WARM_UP:
            micros.append((time.perf_counter_ns() - start) / 1000)
    return micros


def serve_orders(peer, rank, size, answer):
    """Answers orders with the times from `answer(order)` until the end."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["SIRTAKI_BENCH_SOCKET"])
        lines = connection.makefile("rw")

        def say(line):
            lines.write(json.dumps(line) + "\n")
            lines.flush()

        say({"peer": peer, "rank": rank, "size": size})
        for line in lines:
            order = json.loads(line)
            if order.get("end"):
                break
            say({"micros": answer(order)})


def serve(peer, rank, size, measure):
    """Answers orders for all-reduces with `measure(elements, iterations)`."""
    serve_orders(peer, rank, size, lambda order: measure(order["bytes"] // 4, order["iterations"]))


def convolution(before, after, side):
    return [before * after * side * side, after, after]


def resnet():
    """Numbers per tensor of ResNet-50: 161 tensors, 25,557,032 numbers."""
    sizes = convolution(3, 64, 7)
    channels = 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        width = 64 << stage
        for block in range(blocks):
            sizes += convolution(channels, width, 1)
            sizes += convolution(width, width, 3)
            sizes += convolution(width, 4 * width, 1)
            if block == 0:
                sizes += convolution(channels, 4 * width, 1)
            channels = 4 * width
    return sizes + [channels * 1000, 1000]


def split(data):
    """An order for as many numbers as ResNet-50 has is a step of many tensors, any other is one tensor."""
    sizes = resnet()
    return list(data.split(sizes)) if data.numel() == sum(sizes) else [data]
