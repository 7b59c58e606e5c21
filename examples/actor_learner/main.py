"""Actors and a learner, as in reinforcement learning. The learner answers requests for actions; the actors send what
happened as work, which it learns from. One actor is killed, and the others go on."""

import multiprocessing
import os
import signal

import msgspec
import numpy as np

import ringmain as rm

ACTORS, EPISODES, STEPS, ARMS = 4, 5, 20, 3
DEADLY = 0  # this actor is killed in the middle of its second episode


class State(msgspec.Struct):
    actor: int
    step: int


class Action(msgspec.Struct):
    arm: int


class Episode(msgspec.Struct):
    actor: int
    arms: list[int]
    rewards: list[float]


def act(number: int) -> None:
    random = np.random.default_rng(number)
    with (
        rm.Client("policy", request=State, reply=Action) as policy,
        rm.Publisher("episodes", contract="work", type=Episode) as episodes,
    ):
        for episode in range(EPISODES):
            arms, rewards = [], []
            for step in range(STEPS):
                if number == DEADLY and episode == 1 and step == 5:
                    os.kill(os.getpid(), signal.SIGKILL)
                arm = policy.call(State(number, step), timeout=60).arm
                arms.append(arm)
                rewards.append(float(random.normal(arm)))  # the last arm is the best
            episodes.send(Episode(number, arms, rewards))


def main() -> None:
    random = np.random.default_rng(7)
    total, count = np.zeros(ARMS), np.ones(ARMS)
    context = multiprocessing.get_context("spawn")
    actors = [context.Process(target=act, args=(number,)) for number in range(ACTORS)]
    learned = 0
    with (
        rm.Publisher("episodes", contract="work", type=Episode),
        rm.Server("policy", request=State, reply=Action) as policy,
        rm.Subscriber("episodes", type=Episode) as episodes,
    ):
        for process in actors:
            process.start()
        while any(process.is_alive() for process in actors) or rm.info("episodes").waiting:
            for request in policy.take(ACTORS, timeout=0.01):
                explore = random.random() < 0.2
                best = random.integers(ARMS) if explore else (total / count).argmax()
                request.reply(Action(int(best)))
            for episode in episodes.recv_many(ACTORS):
                np.add.at(total, episode.arms, episode.rewards)
                np.add.at(count, episode.arms, 1)
                learned += 1
    print(f"learned from {learned} episodes; value of each arm: {(total / count).round(2).tolist()}")
    assert learned == (ACTORS - 1) * EPISODES + 1
    assert (total / count).argmax() == ARMS - 1


if __name__ == "__main__":
    main()
