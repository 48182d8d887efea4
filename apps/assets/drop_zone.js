// A place for files: they are sent in parts, the next part when the last one has arrived, so that progress is what the server has.

const CHUNK = 1 << 20
const amount = (n) => {
  const units = ["B", "KiB", "MiB", "GiB"]
  let i = 0
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++ }
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toPrecision(3)} ${units[i]}`
}

// All files of what was dropped, those in folders, too.
async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean)
  if (!entries.some((entry) => entry.isDirectory)) return [...transfer.files]
  const files = []
  const walk = async (entry) => {
    if (entry.name.startsWith(".")) return
    if (entry.isFile) { files.push(await new Promise((ok, no) => entry.file(ok, no))); return }
    const reader = entry.createReader()
    for (;;) {
      const some = await new Promise((ok, no) => reader.readEntries(ok, no))
      if (!some.length) break
      for (const inner of some) await walk(inner)
    }
  }
  for (const entry of entries) await walk(entry)
  return files
}

export function render({ model, el }) {
  const root = document.createElement("div")
  root.className = "cl dz"
  root.innerHTML = `
    <label><input type="file" multiple><b>Drop files here, or click to choose</b><span class="hint"></span></label>
    <div class="going" hidden><div class="row"><span class="what" role="status"></span><button type="button">Cancel</button></div>
      <div class="track" role="progressbar" aria-label="Upload" aria-valuemin="0" aria-valuemax="100"><i></i></div></div>`
  el.append(root)
  const label = root.querySelector("label"), input = root.querySelector("input"), going = root.querySelector(".going")
  const what = root.querySelector(".what"), track = root.querySelector(".track"), bar = root.querySelector(".track i")
  const cancel = root.querySelector("button")
  let current = null

  const hint = () => { root.querySelector(".hint").textContent = model.hint }
  const show = (text, part) => {
    what.textContent = text
    const percent = Math.round(100 * part)
    bar.style.width = `${percent}%`
    track.setAttribute("aria-valuenow", String(percent))
  }
  const reset = () => {
    current = null
    going.hidden = true
    label.classList.remove("off")
    input.disabled = false
    input.value = ""
  }

  const start = (files) => {
    if (!files.length || current) return
    current = { id: Math.random().toString(36).slice(2), files, index: 0, sent: 0, done: 0, total: files.reduce((n, f) => n + f.size, 0) }
    going.hidden = false
    cancel.hidden = false
    label.classList.add("off")
    input.disabled = true
    show("Starting", 0)
    model.send_msg({ id: current.id, begin: files.map((f) => ({ name: f.name, size: f.size })) })
  }

  // The server says which file it wants from where; it leaves out what it refuses.
  const send = async (index, offset) => {
    const mine = current
    const file = mine.files[index]
    const slice = file.slice(offset, offset + CHUNK)
    let data
    try { data = new Uint8Array(await slice.arrayBuffer()) } catch (error) {
      model.send_msg({ id: mine.id, lost: index })
      return
    }
    if (current !== mine) return
    const nth = mine.files.length > 1 ? `, file ${index + 1} of ${mine.files.length}` : ""
    show(`Uploading ${file.name}${nth}: ${amount(Math.min(offset + CHUNK, file.size))} of ${amount(file.size)}`, 0)
    const before = mine.files.slice(0, index).reduce((n, f) => n + f.size, 0)
    show(what.textContent, mine.total ? (before + offset) / mine.total : 1)
    let text = ""
    for (let i = 0; i < data.length; i += 0x8000) text += String.fromCharCode.apply(null, data.subarray(i, i + 0x8000))
    model.send_msg({ id: mine.id, file: index, offset, data: btoa(text) })
  }

  model.on("msg:custom", (message) => {
    const told = message.data ?? message
    if (!current || told.id !== current.id) return
    if (told.want) send(...told.want)
    else if (told.checking) { show(told.checking, 1); cancel.hidden = true }
    else if (told.finished) reset()
  })
  model.on("hint", hint)
  hint()
  input.addEventListener("change", () => start([...input.files]))
  cancel.addEventListener("click", () => { if (current) { model.send_msg({ id: current.id, cancel: true }); reset() } })
  for (const name of ["dragenter", "dragover"]) root.addEventListener(name, (event) => { event.preventDefault(); label.classList.add("over") })
  for (const name of ["dragleave", "drop"]) root.addEventListener(name, (event) => { event.preventDefault(); label.classList.remove("over") })
  root.addEventListener("drop", async (event) => start(await dropped(event.dataTransfer)))
}
