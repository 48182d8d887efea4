/* Methods of views that may run before the view is drawn, or of a view that never is. */
const GUARDED = [
  ["Plot", "layout", ["_measure_layout", "_after_layout"]],
  ["panel.models.tabulator.DataTabulator", "tabulator", ["restore_scroll", "record_scroll", "resize_table", "addData", "updateOrAddData"]],
]

for (const [type, needed, names] of GUARDED) {
  const view = Bokeh.Models.get(type)?.prototype.default_view?.prototype
  if (view == null || view.commcanary_guarded) continue
  view.commcanary_guarded = true
  for (const name of names) {
    const inner = view[name]
    if (typeof inner !== "function") continue
    view[name] = function (...args) {
      if (this[needed] != null) return inner.apply(this, args)
    }
  }
}

export function render({ el }) {
  el.hidden = true
}
