# SPDX-License-Identifier: Apache-2.0
"""A whole federation in one process, in virtual time, under a seed: real managers, real agents, hostile network.

What a seed may meet (`seeds/scenario.py` draws it), beside the clocks of all machines, which are up to 90 s off and up
to 2 % too fast or slow, and the dispatcher, which changes from seed to seed (all at once, incremental, by capacity, or
external):

- links: partition, delay, requests that overtake each other, loss of answers, duplicates, some of them much later;
- machines: crash and restart of managers and agents, and of the API servers of the hub and the workers; cut watches;
- leaders: a second manager that takes over, alone or as the theme of a seed;
- transports: each worker has an agent (pull) or a kubeconfig (push), mixed in a third of the seeds;
- people: jobs deleted, created again under their name, preempted, deactivated and with another priority; queues held;
  remote jobs deleted on a worker; clusters removed from the config, deleted and created again, drained, or late.

A theme adds combinations that are rare by chance:

| theme | what it tests |
|---|---|
| anything, more of it | no combination in particular |
| people | what people do, while faults are rarer |
| leaders | two managers; one of them is killed twice |
| fencing | workers away for longer than lease and grace while fenced jobs run |
| return | work is stopped while all workers are lost, and dispatched again as they return |
| rebuilt | the hub is lost with its mailboxes while jobs run; another one is rebuilt by `mkctl cluster recover` |
| restored | the hub is restored from a backup by docs/operations/restore.md; versions go back or jump |
| joining | clusters join by token, request and approval while jobs come, one of them twice; they renew all the time |
| late reports | status arrives twice, up to 15 s later, while work is stopped and dispatched again every few seconds |

With `--groups` users submit pod groups instead of Jobs (`seeds/user_work.py`), and replace pods that failed; hubs are
not rebuilt. With `--elastic` they change the sizes of their Jobs. With `--sets` they submit StatefulSets, delete pods
of them, scale them to zero and back, and delete those that have served (`seeds/set_work.py`). With `--queues` some
workers have a Kueue of their own, which may be down, and users whose Jobs preempt remote ones
(`seeds/queued_workers.py`).

A worker is without its agent, or its agent without it, for a minute at
most in total, and for half of that while the hub receives nothing from there: longer outages need a deadline on the
node for `fenced` (docs/adr/0011). Where clusters join, an agent may have no identity for longer, and nothing is fenced;
nor is anything where the manager is the agent and the hub is restored.
"""
