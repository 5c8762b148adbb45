# Tells the agent what happens, one JSON object a line. Each is on the disk before Ansible goes on, so that
# after a power cut the last line names the task that was at work.
#
# Results of tasks with no_log arrive here already emptied by Ansible. Arguments, command lines and diffs
# are never written: they hold passwords more often than the words of a failure do.

import json
import os

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
    name: wherry
    type: notification
    short_description: writes events for the wherry agent
    description: Appends to the file that WHERRY_EVENTS names.
"""

MAX_NAME = 200  # of a task; templates can make them of any length
MAX_WORDS = 600  # of a failure, so that a report's message has room for more than them


def text(value, limit):
    s = " ".join(str(value).split())
    return s if len(s) <= limit else s[: limit - 1] + "…"


def words(result):
    """What a failed result says, for people."""
    if "censored" in result or result.get("_ansible_no_log"):
        return "its output is hidden by no_log"
    for item in result.get("results") or []:
        if isinstance(item, dict) and (item.get("failed") or item.get("unreachable")):
            return words(item)
    said = [result.get("msg"), result.get("module_stderr"), result.get("stderr")]
    if not result.get("stderr"):
        said.append(result.get("module_stdout"))
    half = MAX_WORDS // 2
    said = [text(s, half) if n == 0 else text(str(s)[-half:], half) for n, s in enumerate(said) if s]
    return text(": ".join(said) or "it does not say why", MAX_WORDS)


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "wherry"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._out = os.open(os.environ["WHERRY_EVENTS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _say(self, event, **fields):
        line = json.dumps(dict(fields, event=event)) + "\n"
        os.write(self._out, line.encode())
        os.fsync(self._out)

    def _ended(self, event, result, **fields):
        self._say(event, task=text(result._task.get_name(), MAX_NAME), **fields)

    def v2_playbook_on_start(self, playbook):
        self._say("playbook", name=os.path.basename(playbook._file_name))

    def v2_playbook_on_play_start(self, play):
        self._say("play", name=text(play.get_name(), MAX_NAME))

    def v2_playbook_on_task_start(self, task, is_conditional):
        self._say("task", name=text(task.get_name(), MAX_NAME))

    def v2_playbook_on_handler_task_start(self, task):
        self._say("task", name=text(task.get_name(), MAX_NAME))

    def v2_playbook_on_no_hosts_matched(self):
        self._say("noHosts")

    def v2_runner_on_ok(self, result):
        facts = result._task.action.rpartition(".")[2] in ("gather_facts", "setup")
        self._ended("changed" if result._result.get("changed") else "ok", result, facts=facts)

    def v2_runner_on_skipped(self, result):
        self._ended("skipped", result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._ended("failed", result, ignored=bool(ignore_errors), words=words(result._result))

    def v2_runner_on_unreachable(self, result):
        self._ended("unreachable", result, words=words(result._result))

    def v2_playbook_on_stats(self, stats):
        self._say("stats", hosts={host: stats.summarize(host) for host in sorted(stats.processed)})
