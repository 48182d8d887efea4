"""The style sheet of a comparison page: light, dark, and paper."""

from __future__ import annotations

__all__ = ["CSS"]

#: Colours are those of the workbench; red is for what fails, and for nothing else.
CSS = """
:root{--page:#f4f6f8;--card:#fff;--text:#18212d;--soft:#56616f;--line:#e1e6ec;--grid:#e9edf2;--before:#8793a3;--after:#0f7285;
--l95:#8d5fb0;--fail:#c93a32;--warn:#a5690c;--good:#23784d;--band:#0f728514;--tint-fail:#c93a3212;--tint-warn:#d3901a1f;--tint-pass:#2f9e6216}
@media screen and (prefers-color-scheme:dark){:root{--page:#10151c;--card:#171d26;--text:#e6eaf0;--soft:#9aa5b4;--line:#2a3340;
--grid:#242c38;--before:#8793a3;--after:#58b9cc;--l95:#b996d6;--fail:#ef7a72;--warn:#e0a84a;--good:#67c393;--band:#58b9cc1c;--tint-fail:#ef7a721f;
--tint-warn:#e0a84a1f;--tint-pass:#67c3931c}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:14px/1.5 Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1000px;margin:0 auto;padding:32px 20px 48px}
h1{font-size:23px;line-height:1.4;text-wrap:pretty;font-weight:600;margin:4px 0 8px;letter-spacing:-.005em}
h2{font-size:15px;font-weight:600;margin:0 0 4px}
p{margin:0}
.names{color:var(--soft);overflow-wrap:anywhere}.names span{padding:0 4px}
.facts,.note,footer,.legend{color:var(--soft)}
.note{margin:0 0 8px}
.verdict{display:inline-block;padding:1px 12px;border-radius:6px;margin-right:4px;font-size:19px}
.verdict.pass{background:var(--tint-pass);color:var(--good)}
.verdict.warn,.verdict.inconclusive{background:var(--tint-warn);color:var(--warn)}
.verdict.fail{background:var(--tint-fail);color:var(--fail)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:12px;margin:20px 0}
.figure,section{background:var(--card);border:1px solid var(--line);border-radius:10px}
.figure{padding:14px 18px}
.figure .what{color:var(--soft);font-size:13px}
.figure .number{font-size:25px;font-weight:600;font-variant-numeric:tabular-nums;line-height:1.35}
.figure .change{font-weight:600;font-variant-numeric:tabular-nums}
.figure .note{font-size:12.5px;margin:2px 0 0}
.figure.fail .change{color:var(--fail)}.figure.warn .change{color:var(--warn)}
section{padding:16px 20px;margin:0 0 14px}
ul{margin:6px 0 0;padding-left:20px}li{margin:3px 0;overflow-wrap:anywhere}
svg{display:block;width:100%;min-width:620px;height:auto;margin-top:4px;font-family:inherit}
svg text{fill:var(--text);font-size:12px}
svg .tick,svg .unit{fill:var(--soft);font-size:11.5px}
svg .label{font-size:12.5px}
svg .value{font-variant-numeric:tabular-nums;font-size:12px}
svg .value.fail,svg .value.regression{fill:var(--fail);font-weight:600}
svg .grid{stroke:var(--grid)}svg .axis{stroke:var(--before)}
svg .limit{stroke:var(--text);stroke-width:1.5}svg .dashed{stroke-dasharray:4 3;stroke-width:1.2}
svg .join{stroke:var(--before);stroke-width:2.5;opacity:.55}
svg circle.before{fill:var(--before)}svg circle.after{fill:var(--after)}svg circle.fail{fill:var(--fail)}
svg .bar{fill:var(--after)}svg .bar.warn{fill:var(--warn)}svg .bar.fail{fill:var(--fail)}
svg .curve{fill:none;stroke-width:2}svg .curve.before{stroke:var(--before)}svg .curve.after{stroke:var(--after)}
svg .band{fill:var(--band)}
svg .span{stroke-width:3;stroke-linecap:round;stroke:var(--before)}svg .dot,svg .arrow{fill:var(--before)}
svg .span.improvement,svg .span.unchanged{stroke:var(--after)}svg .dot.improvement,svg .dot.unchanged{fill:var(--after)}
svg .arrow.improvement,svg .arrow.unchanged{fill:var(--after)}
svg .span.regression{stroke:var(--fail)}svg .dot.regression,svg .arrow.regression{fill:var(--fail)}
.legend{font-size:12.5px;display:flex;flex-wrap:wrap;align-items:center;gap:5px;margin:2px 0 0}
.legend .key{width:10px;height:10px;border-radius:50%;margin-left:10px}.legend .key:first-child{margin-left:0}
.key.before{background:var(--before)}.key.after{background:var(--after)}.key.failed{background:var(--fail)}
.tickmark{width:2px;height:13px;background:var(--text);margin-left:10px}
.scroll{overflow-x:auto;margin-top:6px}
table{border-collapse:collapse;width:100%;font-size:13px}
th{font-weight:600;text-align:left;color:var(--soft);white-space:nowrap}
th,td{padding:5px 14px 5px 0;border-bottom:1px solid var(--line);vertical-align:top}
td.text{min-width:210px;overflow-wrap:anywhere}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.result.fail,.result.regression{color:var(--fail);font-weight:600}
.result.warn,.result.inconclusive{color:var(--warn);font-weight:600}
tr:last-child td{border-bottom:0}
footer{font-size:12.5px;margin-top:18px}
@media (max-width:640px){main{padding:20px 12px}h1{font-size:19px}section{padding:14px}}
.identity{padding:10px 20px}.identity table{font-size:12.5px}.identity th{width:1%;padding-right:18px}
.identity td{overflow-wrap:anywhere}
.identity .hash{font-family:Menlo,Consolas,"Liberation Mono",monospace;font-size:11px;color:var(--soft)}
.signoff{border-top:1px solid var(--line);padding:8px 0}.signoff .result{margin-left:8px}
.signoff .said{white-space:pre-wrap;overflow-wrap:anywhere;margin:4px 0}.signoff .note{margin:0;font-size:12.5px;overflow-wrap:anywhere}
.result.pass{color:var(--good)}td.short{white-space:nowrap}
.strip{display:flex;flex-wrap:wrap;gap:6px;margin:8px 0 2px}
.strip span{border:1px solid var(--line);border-radius:6px;padding:2px 8px;font-size:12.5px;overflow-wrap:anywhere}
.strip .fail{border-color:var(--fail);color:var(--fail);font-weight:600}.strip .warn,.strip .inconclusive{color:var(--warn)}
svg .l99{stroke:var(--after);stroke-width:2.4;fill:none}svg .l95{stroke:var(--l95);stroke-width:2;fill:none;stroke-dasharray:7 3}
svg .l50{stroke:var(--before);stroke-width:2;fill:none;stroke-dasharray:2 3}
svg .m99{fill:var(--after)}svg .m95{fill:var(--l95)}svg .m50{fill:var(--before)}
svg .allow{stroke:var(--text);stroke-width:1.2;stroke-dasharray:1.5 3;fill:none;opacity:.75}
svg .sign{font-size:15px;font-weight:700;fill:var(--soft)}svg .sign.fail{fill:var(--fail)}svg .sign.pass{fill:var(--good)}
svg .sign.warn,svg .sign.inconclusive{fill:var(--warn)}
@media print{@page{size:auto;margin:16mm 13mm 14mm;@top-left{font:8pt Arial,sans-serif;color:#56616f}
@bottom-right{content:counter(page) " / " counter(pages);font:8pt Arial,sans-serif;color:#56616f}}
svg{min-width:0}.scroll{overflow:visible}h1{font-size:17px}h2{break-after:avoid}thead{display:table-header-group}
table{font-size:8.5px}th,td{padding:3px 6px 3px 0}td.text{min-width:0}td.n,th.n,th{white-space:normal}
.identity table{font-size:9.5px}.identity .hash{font-size:8.5px}
.figures{grid-template-columns:repeat(4,1fr);gap:8px}.figure{padding:9px 11px}.figure .number{font-size:19px}body{background:none}
main{max-width:none;padding:0}section,.figure,.signoff,svg{break-inside:avoid}
section:has(table){break-inside:auto}.identity{break-inside:avoid !important}tr{break-inside:avoid}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
""".strip()
