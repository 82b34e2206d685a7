# SPDX-License-Identifier: Apache-2.0
"""A whole federation in one process, in virtual time, under a seed: real managers, real agents, hostile network.

What a seed may meet (`scenario.py` draws it), beside the clocks of all machines, which are up to 90 s off and up to 2 %
too fast or slow, and the dispatcher, which changes from seed to seed (all at once, incremental, by capacity, or
somebody else's):

- links: partition, delay, requests that overtake each other, loss of answers, duplicates, some of them much later;
- machines: crash and restart of managers and agents, and of the API servers of the hub and the workers; cut watches;
- leaders: a second manager that takes over, alone or as the theme of a seed;
- carriers: each worker has an agent or is reached by the manager (push), mixed in a third of the seeds;
- people: jobs deleted, made anew under their name, preempted, deactivated and of another priority; queues held; copies
  deleted on a worker; clusters taken out of the config, removed and made again, drained, or late.

A theme adds what chance would seldom bring together:

| theme | what bites in it |
|---|---|
| anything, more of it | nothing in particular |
| people | what people do, while faults are rarer |
| leaders | two managers; twice one of them is struck |
| fencing | workers away for longer than lease and grace while fenced jobs run |
| return | work is stopped while all workers are away, and sent out anew as they come back |
| rebuilt | the hub is lost with its mailboxes while jobs run; another one is filled by `mkctl cluster recover` |
| restored | the hub is put back to an older backup by docs/operations/restore.md; versions go back or leap ahead |
| joining | clusters join by token, request and approval while jobs come, one of them twice; they renew all the time |
| late words | what agents say comes twice, up to 15 s later, while work is stopped and sent again every few seconds |

Not drawn: a worker with a Kueue of its own. A worker is without its agent, or its agent without it, for a minute at
most in all, and for half of it while the hub hears nothing from there: longer than that `fenced` takes a deadline on
the node (docs/adr/0011). Where clusters join, an agent may be nobody for longer, and nothing is fenced; nor is it where
the manager is the agent and the hub is restored.
"""
