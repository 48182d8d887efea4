"""Preregistrations: what is wrong is said at once, with field and remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.errors import InputError
from commcanary_lab.replay.campaign.checks import needed_repetitions
from commcanary_lab.replay.campaign.example import example
from commcanary_lab.replay.campaign.manifest import planned_order
from commcanary_lab.replay.campaign.metrics import AGREEMENT_METRICS, METRICS
from commcanary_lab.replay.campaign.preregistration import Preregistration
from commcanary_lab.replay.campaign.read import parse_preregistration, read_preregistration

from .builder import PROBE, paired

CRITERION = '[[criteria]]\nname = "c"\nmetric = "fleet_cycle_us"\ncompare = "difference"\nat_least = 1.0\n'


def parse(text: str) -> Preregistration:
    return parse_preregistration(text.encode(), "c.toml")


def refused(text: str) -> list[str]:
    """Return what is wrong with a preregistration."""
    with pytest.raises(InputError) as caught:
        parse(text)
    assert all(p.file == "c.toml" and p.field and p.remedy for p in caught.value.problems), caught.value.problems
    return [str(p) for p in caught.value.problems]


def only(text: str) -> str:
    (problem,) = refused(text)
    return problem.removeprefix("c.toml: ")


def test_a_whole_one() -> None:
    asked = parse(paired(CRITERION, probe=PROBE))
    assert asked.configuration("control").iterations == 3
    assert asked.configuration("control").probe is not None
    assert asked.sides(asked.criteria[0]) == ("control", "candidate")
    assert asked.decision.rule == "all"


def test_everything_that_is_wrong_is_said() -> None:
    text = paired(CRITERION).replace('metric = "fleet_cycle_us"', 'metric = "fleet_cycel_us"').replace("iterations = 3", "iteratons = 3")
    text = text.replace('question = "Is the candidate faster?"', "question = 3")
    assert refused(text) == [
        "c.toml: question: is 3; expected `str`, got `int`",
        "c.toml: configurations[control].iteratons: there is no such key; did you mean 'iterations'?",
        "c.toml: configurations[candidate].iteratons: there is no such key; did you mean 'iterations'?",
    ]
    assert only(text.replace("iteratons", "iterations").replace("question = 3", 'question = "?"')) == (
        "criteria[c].metric: there is no metric 'fleet_cycel_us'; did you mean 'fleet_cycle_us'?"
    )


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("repetitions = 6", "repetitions = 7", "repetitions: is 7, and A B B A runs each configuration twice; an even number"),
        ("repetitions = 6", "repetitions = 0", "repetitions: is 0; from 1 to 1000"),
        ("repetitions = 6", "repetitions = 4", "criteria[c].metric: 4 repetitions cover a median with a probability of at most 0.875"),
        ("repetitions = 6", "repetitions = 6\nconfidence = 1.5", "confidence: is 1.5; from 0.5 to 0.9999"),
        ("repetitions = 6", "repetitions = 6\nstability_limit = 0.0", "stability_limit: is 0; from 0.0001 to 10"),
        ('order = "ABBA"', 'order = "ABAB"', "order: is 'ABAB'"),
        ('control = "control"\ncandidate', 'control = "contrl"\ncandidate', "control: there is no configuration 'contrl'; did you mean"),
        ('candidate = "candidate"\n\n', 'candidate = "control"\n\n', "candidate: is the control, 'control'; name another configuration"),
        ('name = "control"', 'name = "../control"', "configurations: '../control' is no name for a file"),
        ('name = "candidate"', 'name = "Control"', "configurations: 'control' occurs 2 times"),
        ('program = "candidate"', 'program = "candidat"', "configurations[candidate].program: there is no program 'candidat'"),
        ("iterations = 3", "iterations = 0", "configurations[control].iterations: is 0; from 1 to 1e+07"),
        ("iterations = 3", "iterations = true", "configurations[control].iterations: is true"),
        ("iterations = 3", 'kind = "probe"', "configurations[control].probe: is missing, and the kind is probe"),
        ("iterations = 3", 'ranking = "canary"', "configurations[control].setting: ranking and setting belong together"),
        ("iterations = 3", "probe = { epochs = 0 }", "configurations[control].probe.epochs: is 0"),
        ("at_least = 1.0", "", "criteria[c].at_least: there is no boundary"),
        ("at_least = 1.0", "equals = 1.0", "criteria[c].equals: a measured time is never exactly something; at_least and at_most"),
        ("at_least = 1.0", "at_least = 2.0\nat_most = 1.0", "criteria[c]: nothing is at least 2 and at most 1; correct one of them"),
        ("at_least = 1.0", "at_least = nan", "criteria[c].at_least: is nan; a finite number"),
        ("at_least = 1.0", "all = true", "criteria[c].aggregate: only a count can be asked for all"),
        ("at_least = 1.0", 'at_least = 1.0\nop = "all_reduce"', "criteria[c].op: fleet_cycle_us is of all events"),
        ("at_least = 1.0", 'at_least = 1.0\nstatistic = "p51"', "criteria[c].statistic: there is no 'p51'"),
        ("at_least = 1.0", 'at_least = 1.0\naggregate = "every_rank"', "criteria[c].aggregate: fleet_cycle_us is one figure of a run"),
        ("at_least = 1.0", 'at_least = 1.0\nconfiguration = "control"', "criteria[c].configuration: two configurations are compared"),
        ("at_least = 1.0", "at_least = 1.0\nrequired = false", "criteria: none is required, nothing would decide"),
        ('metric = "fleet_cycle_us"', 'metric = "cycle_us"', "criteria[c].aggregate: cycle_us has a figure per rank, and nothing says"),
        ('metric = "fleet_cycle_us"', 'metric = "rate"\nrate = "x"', "criteria[c].rate: there is no rate 'x'; known: none"),
        ('metric = "fleet_cycle_us"', 'metric = "pair_agreement"\nranking = "x"', "criteria[c].compare: pair_agreement is a metric"),
        ('metric = "fleet_cycle_us"', 'metric = "probe_pass"', "criteria[c].metric: 'control' has no probe"),
    ],
)  # fmt: skip
def test_what_is_refused(old: str, new: str, told: str) -> None:
    text = paired(CRITERION)
    assert old in text
    assert any(p.removeprefix("c.toml: ").startswith(told) for p in refused(text.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ('[decision]\nrule = "at_least"\n', "decision.minimum: is None, 1 criteria are required; from 1 to 1"),
        ('[decision]\nrule = "any"\nminimum = 1\n', "decision.minimum: means nothing with rule = 'any'"),
        ("[[audits]]\ncounts = { all_gather = 96, all_reduce = 1 }\ntotal = 98\n", "audits[0].total: is 98, the counts add up to 97"),
        ('[[audits]]\ncounts = { all_gather = 96 }\nconfigurations = ["x"]\n', "audits[0].configurations: there is no configuration 'x'"),
        ('[[rates]]\nname = "t"\nper_cycle = { control = 1.0 }\n', "rates[t].per_cycle: a rate is compared between control and candidate"),
        (
            '[[rates]]\nname = "t"\nper_cycle = { control = 1.0, candidate = -1.0 }\n',
            "rates[t].per_cycle.candidate: is -1; a positive number",
        ),
        ('[agreement]\nreference = "source"\n', "agreement.reference: there is no ranking 'source'; known: none"),
        (CRITERION, "criteria: 'c' occurs 2 times; give each its own name"),
        (CRITERION.replace('"c"', '"probe: control"'), "criteria: the name 'probe: control' cannot be used"),
    ],
)
def test_what_is_refused_in_tables(more: str, told: str) -> None:
    assert only(paired(CRITERION + more)).startswith(told)


def test_nothing_to_decide() -> None:
    assert only(paired()).startswith("criteria: there is nothing to decide")
    parse(paired(probe=PROBE))


def test_times_of_a_probe_do_not_count() -> None:
    text = paired(CRITERION, probe=PROBE).replace("iterations = 3", 'kind = "probe"', 1)
    assert only(text) == "criteria[c].metric: 'control' is a probe, its times do not count; kind = \"measured\", or another metric"


def test_no_toml_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not TOML.*campaign new writes an example"):
        parse("a = [")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_preregistration(tmp_path / "absent.toml")


def test_the_example_is_valid_and_names_what_exists() -> None:
    asked = parse(example(file="my campaign.toml", control='a "quoted" name.json', ranks=4))
    assert (asked.name, asked.configurations[0].ranks) == ("my-campaign", 4)
    assert asked.programs["control"] == 'a "quoted" name.json'
    commented = [line[2:] for line in example().splitlines() if re.match(r"# (\[\[|[a-z_]+ = )", line)]
    whole = example() + "\n" + "\n".join(line for line in commented if not line.startswith("fabric"))
    assert parse(whole).audits[0].total == 97


def test_every_metric_can_be_asked_for() -> None:
    for metric in METRICS.values():
        rate = 'rate = "t"\n' if metric.name == "rate" else ""
        count = {"outputs_equal": 'aggregate = "count"\nall = true\n', "probe_pass": 'aggregate = "count"\nequals = 6.0\n'}
        end = count.get(metric.name, ('aggregate = "every_rank"\n' if metric.of_ranks else "") + "at_most = 1.0\n")
        text = f'[[criteria]]\nname = "c"\nmetric = "{metric.name}"\nconfiguration = "control"\n{rate}{end}'
        text += '[[rates]]\nname = "t"\nper_cycle = { control = 1.0, candidate = 1.0 }\n'
        assert parse(paired(text, probe=PROBE)).criteria[0].metric == metric.name
    assert not set(METRICS) & set(AGREEMENT_METRICS)


@given(st.integers(1, 40))
def test_abba(pairs: int) -> None:
    asked = parse(paired(probe=PROBE, repetitions=2 * pairs))
    order = planned_order(asked)
    assert "".join({"control": "A", "candidate": "B"}[p.configuration] for p in order) == "ABBA" * pairs
    assert [p.run for p in order] == list(range(1, 4 * pairs + 1))
    # each repetition has both, and a linear drift gives both the same mean
    assert all(len({p.configuration for p in order if p.round == r}) == 2 for r in range(1, 2 * pairs + 1))
    means = [sum(p.run for p in order if p.configuration == c) for c in ("control", "candidate")]
    assert means[0] == means[1]


@given(st.integers(3, 8), st.integers(1, 10))
def test_rotation(configurations: int, repetitions: int) -> None:
    tables = "".join(f'[[configurations]]\nname = "c{i}"\n{PROBE}\n' for i in range(configurations))
    head = f'format = "commcanary.campaign.v1"\nname = "n"\nquestion = "?"\nrepetitions = {repetitions}\nprograms = {{ p = "p.json" }}\n'
    order = planned_order(parse(head + tables))
    names = [f"c{i}" for i in range(configurations)]
    for r in range(repetitions):
        turn = [p.configuration for p in order if p.round == r + 1]
        assert sorted(turn) == names
        assert turn[0] == names[r % configurations]


@given(st.floats(0.5, 0.9999))
def test_needed_repetitions(confidence: float) -> None:
    n = needed_repetitions(confidence)
    assert 1 - 2.0 ** (1 - n) >= confidence - 1e-9
    assert n == 2 or 1 - 2.0 ** (2 - n) < confidence
