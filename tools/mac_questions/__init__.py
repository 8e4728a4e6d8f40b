"""The questions that only a Mac can answer; tools/on_a_mac.py asks them.

`python -m mac_questions NAME` asks one in this process.
"""

from importlib import import_module

from .asking import QUESTIONS, Answer, Question, answer

__all__ = ["QUESTIONS", "Answer", "Question", "answer"]

#: In the order in which they are asked.
for _name in ("machine", "memory", "gpu", "frameworks", "processes", "whole"):
    import_module(f".{_name}", __name__)
