"""What a preregistration may not say: names that lead nowhere, designs that cannot be carried out, criteria that nothing can decide."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable

from commcanary_lab.replay.campaign.metrics import AGREEMENT_METRICS, METRICS
from commcanary_lab.replay.campaign.preregistration import STATISTICS, Configuration, Criterion, Preregistration, aggregates
from commcanary_lab.replay.campaign.strict import Complaints, nearest

__all__ = ["MAX_RUNS", "check", "needed_repetitions"]

#: More runs than this are a mistake in the file.
MAX_RUNS = 9999
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def needed_repetitions(confidence: float) -> int:
    """Return how many repetitions an interval needs: n of them cover the median with a probability of at most 1 - 2^(1 - n).

    Examples
    --------
    >>> needed_repetitions(0.95), needed_repetitions(0.9), needed_repetitions(0.75)
    (6, 5, 3)
    """
    return max(2, math.ceil(1 - math.log2(1 - confidence) - 1e-12))


def _needed(asked: Preregistration) -> int:
    """The same for a preregistration; 0 where its confidence is none, which is a problem of its own."""
    return needed_repetitions(asked.confidence) if 0 < asked.confidence < 1 else 0


def check(asked: Preregistration, complaints: Complaints) -> None:
    """Add everything that is wrong with the meaning of a preregistration."""
    _numbers(asked, complaints)
    _names(asked, complaints)
    for c in asked.configurations:
        _configuration(asked, c, f"configurations[{c.name}]", complaints)
    _design(asked, complaints)
    _audits(asked, complaints)
    _rates(asked, complaints)
    _agreement(asked, complaints)
    for criterion in asked.criteria:
        _criterion(asked, criterion, f"criteria[{criterion.name}]", complaints)
    _decision(asked, complaints)


def _numbers(asked: Preregistration, complaints: Complaints) -> None:
    bounds = {
        "repetitions": (1, 1000), "stability_limit": (0.0001, 10), "timeout_s": (1, 7 * 86400), "confidence": (0.5, 0.9999),
        "resamples": (100, 100_000),
    }  # fmt: skip
    for name, (low, high) in bounds.items():
        _range(getattr(asked, name), low, high, name, complaints)
    for name in ("name", "question"):
        if not getattr(asked, name).strip():
            complaints.add(name, "is empty", "say it in words")
    if not asked.programs:
        complaints.add("programs", "there is none", 'write for example programs = { canary = "canary.json" }')
    if not asked.configurations:
        complaints.add("configurations", "there is none", "write [[configurations]]")


def _range(value: float | None, low: float, high: float, at: str, complaints: Complaints) -> None:
    if value is not None and not low <= value <= high:
        complaints.add(at, f"is {value:g}", f"from {low:g} to {high:g}")


def _names(asked: Preregistration, complaints: Complaints) -> None:
    for what, names in (("programs", list(asked.programs)), ("configurations", [c.name for c in asked.configurations])):
        for name in names:
            if not _NAME.fullmatch(name):
                complaints.add(what, f"{name!r} is no name for a file", "up to 64 letters, digits, dots, _ and -")
    for what, names in (
        ("configurations", [c.name for c in asked.configurations]), ("criteria", [c.name for c in asked.criteria]),
        ("rates", [r.name for r in asked.rates]),
    ):  # fmt: skip
        # directories of runs carry the names, and some file systems do not tell cases apart
        for name, times in Counter(n.lower() if what == "configurations" else n for n in names).items():
            if times > 1:
                complaints.add(what, f"{name!r} occurs {times} times", "give each its own name")
    for criterion in asked.criteria:
        if not criterion.name.strip() or criterion.name.startswith("probe: "):
            complaints.add("criteria", f"the name {criterion.name!r} cannot be used", "the criteria of probes are called so")


def _known(name: str, known: Iterable[str], at: str, what: str, complaints: Complaints) -> bool:
    names = list(known)
    if name in names:
        return True
    complaints.add(at, f"there is no {what} {name!r}" if name else f"a {what} is missing", nearest(name, names))
    return False


def _configuration(asked: Preregistration, c: Configuration, at: str, complaints: Complaints) -> None:
    if c.program or len(asked.programs) != 1:
        _known(c.program, asked.programs, f"{at}.program", "program", complaints)
    for name, low in (("iterations", 1), ("warmup", 0), ("ranks", 1), ("timeout_s", 1)):
        _range(getattr(c, name), low, 10_000_000, f"{at}.{name}", complaints)
    if c.probe is not None:
        for name in ("epochs", "replays"):
            _range(getattr(c.probe, name), 1, 1_000_000, f"{at}.probe.{name}", complaints)
        fault = c.probe.fault
        if fault is not None:
            _range(fault.sample, 0, c.probe.epochs * c.probe.replays - 1, f"{at}.probe.fault.sample", complaints)
            _range(fault.event, 0, 1e12, f"{at}.probe.fault.event", complaints)
    elif c.kind == "probe":
        complaints.add(f"{at}.probe", "is missing, and the kind is probe", 'write [configurations.probe], or kind = "measured"')
    if bool(c.ranking) != bool(c.setting):
        complaints.add(f"{at}.setting", "ranking and setting belong together", "write both, or neither")


def _design(asked: Preregistration, complaints: Complaints) -> None:
    names = [c.name for c in asked.configurations]
    for side in ("control", "candidate"):
        if getattr(asked, side) or asked.order == "ABBA":
            _known(getattr(asked, side), names, side, "configuration", complaints)
    if asked.control and asked.control == asked.candidate:
        complaints.add("candidate", f"is the control, {asked.control!r}", "name another configuration")
    if asked.order == "ABBA" and len(names) != 2:
        complaints.add("order", f"ABBA interleaves two configurations, there are {len(names)}", 'write order = "rotation"')
    if asked.order == "ABBA" and asked.repetitions % 2:
        complaints.add("repetitions", f"is {asked.repetitions}, and A B B A runs each configuration twice", "an even number")
    if len(names) * asked.repetitions > MAX_RUNS:
        complaints.add("repetitions", f"these are {len(names) * asked.repetitions} runs", f"at most {MAX_RUNS}")
    probed = any(c.probe is not None for c in asked.configurations)
    if not asked.criteria and not probed:
        complaints.add("criteria", "there is nothing to decide", "write [[criteria]], or a probe in a configuration")


def _audits(asked: Preregistration, complaints: Complaints) -> None:
    names = [c.name for c in asked.configurations]
    for i, audit in enumerate(asked.audits):
        at = f"audits[{i}]"
        for name in audit.configurations:
            _known(name, names, f"{at}.configurations", "configuration", complaints)
        if not audit.counts or any(n < 0 for n in audit.counts.values()):
            complaints.add(f"{at}.counts", "are no counts", "write for example counts = { all_gather = 96, all_reduce = 1 }")
        if audit.total is not None and audit.total != sum(audit.counts.values()):
            complaints.add(f"{at}.total", f"is {audit.total}, the counts add up to {sum(audit.counts.values())}", "correct one of them")


def _rates(asked: Preregistration, complaints: Complaints) -> None:
    names = [c.name for c in asked.configurations]
    for rate in asked.rates:
        at = f"rates[{rate.name}]"
        for name, value in rate.per_cycle.items():
            _known(name, names, f"{at}.per_cycle", "configuration", complaints)
            if not (math.isfinite(value) and value > 0):
                complaints.add(f"{at}.per_cycle.{name}", f"is {value:g}", "a positive number")
        for side in (asked.control, asked.candidate):
            if not side or side not in rate.per_cycle:
                complaints.add(f"{at}.per_cycle", "a rate is compared between control and candidate", "name them, and give both a yield")
                break


def _agreement(asked: Preregistration, complaints: Complaints) -> None:
    rankings = asked.rankings()
    members = Counter((c.ranking, c.setting) for c in asked.configurations if c.ranking)
    for (ranking, setting), times in members.items():
        if times > 1:
            complaints.add("configurations", f"{times} are {setting!r} in the ranking {ranking!r}", "give each its own setting")
    wanted = asked.agreement
    if wanted is None:
        if rankings:
            complaints.add("agreement", "is missing, and configurations have a ranking", "write [agreement] with a reference")
        return
    if not _known(wanted.reference, rankings, "agreement.reference", "ranking", complaints):
        return
    reference = set(rankings[wanted.reference])
    if len(reference) < 2:
        complaints.add("agreement.reference", f"{wanted.reference!r} has {len(reference)} settings", "at least 2")
    others = {name: set(settings) for name, settings in rankings.items()} | {p.name: set(p.values) for p in wanted.predictions}
    for name, settings in others.items():
        if settings != reference:
            odd = sorted(settings ^ reference)
            what = f"{name!r} and {wanted.reference!r} do not rank the same: {', '.join(odd)}"
            complaints.add("agreement", what, "the same settings for all")
    for name, times in Counter([*rankings, *(p.name for p in wanted.predictions)]).items():
        if times > 1:
            complaints.add("agreement.predictions", f"{name!r} occurs {times} times", "give each ranking its own name")
    for p in wanted.predictions:
        if not all(math.isfinite(v) and v > 0 for v in p.values.values()):
            complaints.add(f"agreement.predictions[{p.name}].values", "are not all positive", "positive numbers, smaller is better")
    if len(others) < 2:
        complaints.add("agreement", "there is no ranking to compare with the reference", "a second ranking, or [[agreement.predictions]]")
    times_of_runs = [m.name for m in METRICS.values() if not m.of_ranks and not m.exact and m.name != "rate"]
    _known(wanted.metric, times_of_runs, "agreement.metric", "time of a run", complaints)
    if not 0 <= wanted.tie_fraction < 1:
        complaints.add("agreement.tie_fraction", f"is {wanted.tie_fraction:g}", "from 0 to less than 1")


def _criterion(asked: Preregistration, c: Criterion, at: str, complaints: Complaints) -> None:
    if not _known(c.metric, [*METRICS, *AGREEMENT_METRICS], f"{at}.metric", "metric", complaints):
        return
    _boundary(c, at, complaints)
    _range(c.stability_limit, 0.0001, 10, f"{at}.stability_limit", complaints)
    if c.metric in AGREEMENT_METRICS:
        _of_rankings(asked, c, at, complaints)
        return
    metric = METRICS[c.metric]
    if c.ranking:
        complaints.add(f"{at}.ranking", f"{c.metric} is no metric of rankings", f"one of {', '.join(AGREEMENT_METRICS)}")
        return
    names = [x.name for x in asked.configurations]
    sides = asked.sides(c)
    where = f"{at}.{'control/candidate' if c.compare else 'configuration'}"
    known = all([_known(s, names, where, "configuration", complaints) for s in sides])
    if c.compare and c.configuration:
        complaints.add(f"{at}.configuration", "two configurations are compared", "leave it out, or leave compare out")
    if c.compare and known and sides[0] == sides[1]:
        complaints.add(f"{at}.candidate", f"is the control, {sides[0]!r}", "name another configuration")
    if c.metric == "rate" and _known(c.rate, [r.name for r in asked.rates], f"{at}.rate", "rate", complaints):
        lacking = set(sides) - set(next(r for r in asked.rates if r.name == c.rate).per_cycle)
        if known and lacking:
            complaints.add(f"{at}.rate", f"{c.rate!r} has no yield for {', '.join(sorted(lacking))}", "state it in per_cycle")
    if (c.op or c.size_bytes is not None) and not metric.filtered:
        complaints.add(f"{at}.op", f"{c.metric} is of all events", "leave op and size_bytes out")
    if c.size_bytes is not None and metric.exact:
        complaints.add(f"{at}.size_bytes", f"{c.metric} is counted by operation", "leave it out")
    if c.statistic not in STATISTICS:
        complaints.add(f"{at}.statistic", f"there is no {c.statistic!r}", f"one of {', '.join(STATISTICS)}")
    elif c.statistic != "p50" and not metric.sampled:
        complaints.add(f"{at}.statistic", f"{c.metric} is one figure", "leave statistic out")
    if known:
        _runs(asked, c, at, complaints)
    _aggregate(c, at, complaints)


def _boundary(c: Criterion, at: str, complaints: Complaints) -> None:
    given = [name for name in ("at_least", "at_most", "equals") if getattr(c, name) is not None] + ["all"] * c.all
    if not given:
        complaints.add(f"{at}.at_least", "there is no boundary", "at_least, at_most, equals, or all with a count")
    if ("equals" in given or "all" in given) and len(given) > 1:
        complaints.add(at, f"{' and '.join(given)} exclude each other", "keep one")
    low, high = c.at_least, c.at_most
    if low is not None and high is not None and low > high:
        complaints.add(at, f"nothing is at least {low:g} and at most {high:g}", "correct one of them")
    for name in ("at_least", "at_most", "equals", "each_at_least", "each_at_most"):
        value = getattr(c, name)
        if value is not None and not math.isfinite(value):
            complaints.add(f"{at}.{name}", f"is {value}", "a finite number")
    exact = c.aggregate == "count" or (c.metric in METRICS and METRICS[c.metric].exact) or c.metric in AGREEMENT_METRICS[2:]
    if c.equals is not None and not exact:
        complaints.add(f"{at}.equals", "a measured time is never exactly something", "at_least and at_most")


def _aggregate(c: Criterion, at: str, complaints: Complaints) -> None:
    metric = METRICS[c.metric]
    if c.aggregate and not metric.of_ranks and c.aggregate != "count":
        complaints.add(f"{at}.aggregate", f"{c.metric} is one figure of a run", "leave aggregate out, or count runs")
    elif (c.aggregate or metric.of_ranks) and c.aggregate not in aggregates():
        what = f"there is no {c.aggregate!r}" if c.aggregate else f"{c.metric} has a figure per rank, and nothing says what becomes of them"
        complaints.add(f"{at}.aggregate", what, f"one of {', '.join(aggregates()[:5])}, {', '.join(STATISTICS)}")
    each = c.each_at_least is not None or c.each_at_most is not None
    if (each or c.all) and c.aggregate != "count":
        complaints.add(f"{at}.aggregate", "only a count can be asked for all, or for each", 'write aggregate = "count"')
    if c.aggregate == "count" and not each and c.metric not in ("outputs_equal", "probe_pass"):
        complaints.add(f"{at}.each_at_least", f"nothing says which values of {c.metric} count", "each_at_least or each_at_most")
    if c.aggregate == "count" and c.compare and c.metric in ("outputs_equal", "probe_pass"):
        complaints.add(f"{at}.compare", "data are right or wrong, they are not compared", "leave compare out, name a configuration")


def _runs(asked: Preregistration, c: Criterion, at: str, complaints: Complaints) -> None:
    metric = METRICS[c.metric]
    sides = [asked.configuration(s) for s in asked.sides(c)]
    for x in sides:
        if not metric.exact and x.kind == "probe":
            complaints.add(f"{at}.metric", f"{x.name!r} is a probe, its times do not count", 'kind = "measured", or another metric')
        if c.metric in ("outputs_equal", "probe_pass") and x.probe is None:
            complaints.add(f"{at}.metric", f"{x.name!r} has no probe", "write [configurations.probe] there")
        if c.metric == "bookkeeping_us" and x.timing == "preserve":
            complaints.add(f"{at}.metric", f"{x.name!r} preserves gaps: the worker waits on purpose", 'timing = "back_to_back"')
    if c.compare and c.aggregate in ("every_rank", "fleet_median") and len({x.ranks for x in sides}) > 1:
        complaints.add(f"{at}.compare", "control and candidate have different ranks, which cannot be paired", "the same ranks for both")
    needed = _needed(asked)
    if not metric.exact and c.aggregate != "count" and asked.repetitions < needed:
        short = f"{asked.repetitions} repetitions cover a median with a probability of at most {1 - 2.0 ** (1 - asked.repetitions):.4g}"
        complaints.add(f"{at}.metric", f"{short}: {c.metric} could only be inconclusive", f"repetitions = {needed}, or a lower confidence")


def _of_rankings(asked: Preregistration, c: Criterion, at: str, complaints: Complaints) -> None:
    for name in ("op", "aggregate", "configuration", "compare", "control", "candidate", "rate", "all"):
        if getattr(c, name):
            complaints.add(f"{at}.{name}", f"{c.metric} is a metric of rankings", "leave it out")
    if asked.agreement is None:
        complaints.add(f"{at}.metric", "there is no agreement to ask about", "write [agreement]")
        return
    others = [n for n in asked.rankings() if n != asked.agreement.reference] + [p.name for p in asked.agreement.predictions]
    _known(c.ranking, others, f"{at}.ranking", "ranking", complaints)
    if c.metric in AGREEMENT_METRICS[:2] and asked.repetitions < (needed := _needed(asked)):
        complaints.add(f"{at}.metric", f"{asked.repetitions} repetitions give no interval", f"repetitions = {needed}, or less confidence")


def _decision(asked: Preregistration, complaints: Complaints) -> None:
    rule, minimum = asked.decision.rule, asked.decision.minimum
    required = sum(c.required for c in asked.criteria)
    if rule == "at_least" and (minimum is None or not 1 <= minimum <= required):
        complaints.add("decision.minimum", f"is {minimum}, {required} criteria are required", f"from 1 to {required}")
    if rule != "at_least" and minimum is not None:
        complaints.add("decision.minimum", f"means nothing with rule = {rule!r}", 'leave it out, or rule = "at_least"')
    if asked.criteria and not required:
        complaints.add("criteria", "none is required, nothing would decide", "required = true for at least one")
