"""Makes the stream `orders` if it is not there; prints its messages and their different ids."""

import asyncio
import json
import os

import nats


async def main() -> None:
    client = await nats.connect(os.environ.get("NATS", "nats://localhost:4222"))
    context = client.jetstream()
    # The same settings again change nothing.
    await context.add_stream(name="orders", subjects=["orders.new"], duplicate_window=3600)
    count = (await context.stream_info("orders")).state.messages
    reader = await context.subscribe("orders.new", ordered_consumer=True)
    ids = {json.loads((await reader.next_msg()).data)["id"] for _ in range(count)}
    print(count, len(ids))
    await client.close()


asyncio.run(main())
