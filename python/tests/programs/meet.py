"""Ranks that meet with nothing but the standard library: rank 0 listens at MASTER_PORT."""

import os
import socket
import time

PATIENCE = 30.0


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank == 0:
        print("met", *welcome(address, size - 1))
    else:
        with reach(address) as connection:
            connection.sendall(bytes([rank]))
            print("said", connection.recv(1)[0])


def welcome(address, guests):
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.settimeout(PATIENCE)
        listener.bind(address)
        listener.listen()
        found = []
        for _ in range(guests):
            connection, _ = listener.accept()
            with connection:
                rank = connection.recv(1)
                connection.sendall(rank)
                found.append(rank[0])
        return sorted(found)


def reach(address):
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(address, PATIENCE)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


main()
