"""asyncio: a service reads requests from one topic and answers on another; a client awaits the answer. No polling."""

import asyncio

import ringmain as rm


async def serve(count: int) -> None:
    with (
        rm.Subscriber("questions", start="oldest") as questions,
        rm.Publisher("answers", contract="reliable") as answers,
    ):
        await asyncio.to_thread(answers.wait_for_readers, 1, 10)
        async for question in questions:
            await answers.asend(question.upper())
            count -= 1
            if count == 0:
                return


async def ask(words: list[str]) -> list[str]:
    with (
        rm.Publisher("questions", contract="reliable") as questions,
        rm.Subscriber("answers", start="oldest") as answers,
    ):
        await asyncio.to_thread(questions.wait_for_readers, 1, 10)
        heard = []
        for word in words:
            await questions.asend(word.encode())
            heard.append((await answers.arecv(timeout=10)).decode())
        return heard


async def main() -> None:
    words = ["one", "ring", "many", "taps"]
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        service = group.create_task(serve(len(words)))
        client = group.create_task(ask(words))
    assert service.done()
    print(client.result())
    assert client.result() == [word.upper() for word in words]


if __name__ == "__main__":
    asyncio.run(main())
