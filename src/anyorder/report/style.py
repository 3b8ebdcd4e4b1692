"""How a page looks: on a desk, on a phone, in the dark, and on paper."""

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --quiet: #5b6675; --line: #dde2e9; --paper: #fff;
  --shade: #b4bdca; --back: #f5f7fa; --accent: #2458a6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ecf2; --quiet: #9eabbc; --line: #323c4a;
  --shade: #566376; --paper: #1b222d; --back: #12171f; --accent: #86b2f4; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 60rem; background: var(--back);
  color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 0 0 .5rem; }
header > p { color: var(--quiet); margin: 0 0 1rem; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem;
  margin: 0 0 1rem; }
dl > div, section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; }
dl > div { padding: .6rem .8rem; }
dt { color: var(--quiet); font-size: .85rem; }
dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1rem; padding: 0;
  margin: 0; }
a { color: var(--accent); }
section { padding: 1rem 1.1rem; margin-top: 1rem; }
p { max-width: 44rem; margin: .4rem 0; }
ul { padding-left: 1.2rem; max-width: 46rem; }
li { margin: .25rem 0; }
pre { background: var(--back); border: 1px solid var(--line); border-radius: 8px; padding: .7rem;
  overflow-x: auto; font: .85rem/1.5 ui-monospace, "SFMono-Regular", Menlo, monospace; }
.scroll { overflow-x: auto; margin: .6rem 0;
  /* Shades at the edges; covers that scroll with the content hide them where it ends. */
  background: linear-gradient(var(--paper), var(--paper)) 0 0 / 1rem 100% no-repeat local,
    linear-gradient(var(--paper), var(--paper)) 100% 0 / 1rem 100% no-repeat local,
    linear-gradient(to right, var(--shade), transparent) 0 0 / .8rem 100% no-repeat scroll,
    linear-gradient(to left, var(--shade), transparent) 100% 0 / .8rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--quiet); padding-bottom: .3rem; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { color: var(--quiet); font-weight: 600; }
td { overflow-wrap: break-word; max-width: 26rem; min-width: 3.5rem; }
.number { text-align: right; white-space: nowrap; }
figure { margin: .8rem 0; }
img { max-width: 100%; height: auto; display: block; background: #fff;
  border-radius: 6px; }
.panels { display: flex; flex-wrap: wrap; gap: .4rem .8rem; align-items: flex-start; }
img.pixels { image-rendering: pixelated; }
figcaption { color: var(--quiet); font-size: .9rem; max-width: 44rem; margin-top: .3rem; }
@media (max-width: 40rem) { pre { white-space: pre-wrap; overflow-wrap: anywhere; }
  table { width: max-content; } td { max-width: 14rem; } }
@media print { body { background: none; max-width: none; padding: 0; font-size: 11pt; }
  nav { display: none; } section, dl > div { border-color: #bbb; break-inside: avoid-page; } }
"""
