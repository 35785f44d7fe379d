"""Sends lines of words to whoever connects, ten a second: `python words.py [LINES] [PORT]`.

It goes on with the next line for the next client. What it has sent to a client that has died is
gone, as with `nc -lk 9999`.
"""

import socket
import sys
import time

lines, port = (int(text) for text in (*sys.argv[1:], "600", "9999")[:2])
sent = 0
with socket.create_server(("127.0.0.1", port)) as server:
    while sent < lines:
        client, _ = server.accept()
        try:
            while sent < lines:
                client.sendall(b"to be or not to be\n")
                sent += 1
                time.sleep(0.1)
            print(f"sent {sent} lines", flush=True)
            client.recv(1)  # until the client has gone
        except OSError:
            print(f"the client has gone after {sent} lines", flush=True)
