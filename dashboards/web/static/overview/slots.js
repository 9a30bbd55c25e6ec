// VM × slot: whose threads are where, which slots belong to one bundle alone, which are free.
import { fill, keyed, legend, make, mark, say, scrolled } from "../core/elements.js";
import { levelKeys, levelOf, LEVELS } from "../core/levels.js";
import { count, figure, known, percent, price, some } from "../core/numbers.js";

const MANY = 80; // slots: above it they are drawn smaller

export function createSlotMap(section) {
  const said = make("p", { class: "answer" });
  const list = make("ul", { class: "vms", "aria-label": "VMs and their slots" });
  section.querySelector("h2").after(said, key());
  section.querySelector(".view").append(scrolled("Slot map, can be scrolled", list));
  let shown = {};
  return (picture) => {
    say(said, usedText(picture));
    const same =
      shown.slots === picture.slots &&
      shown.vms === picture.vms &&
      shown.next_bottleneck === picture.next_bottleneck;
    if (same) return;
    const slots = new Map(Object.keys(picture.vms).map((vm) => [vm, []]));
    for (const [name, slot] of Object.entries(picture.slots)) {
      if (!slots.has(slot.vm)) slots.set(slot.vm, []);
      slots.get(slot.vm).push([name, slot]);
    }
    mark(list, "data-many", Object.keys(picture.slots).length > MANY);
    keyed(list, [...slots], newVm, (node, found, vm) =>
      drawVm(node, vm, picture.vms[vm], found, picture.next_bottleneck?.slot),
    );
    shown = picture;
  };
}

// `6 of 8 in use on 2 VMs · 23 threads · $0.20 per hour`.
function usedText({ plan, vms }) {
  const total = Object.values(vms).reduce((sum, vm) => sum + vm.slots, 0);
  const there = `on ${some(Object.keys(vms).length, "VM")}`;
  if (!plan) return `${count(total)} ${there}`;
  const cost = plan.usd_per_hour > 0 ? ` · ${price(plan.usd_per_hour)}` : "";
  return `${count(plan.slots.used)} of ${count(total)} in use ${there} · ${some(plan.threads, "thread")}${cost}`;
}

const key = () =>
  legend(
    "CPU of a slot: ",
    ...levelKeys(),
    " · ",
    make("span", { class: "key exclusive" }, "▣ exclusive"),
    " one full bundle, nobody else gets in",
    " · ",
    make("span", { class: "key free" }, "free"),
    " · ▼ and a thick frame: saturates first · the tick on a bar is what the models predict",
  );

function newVm(_, vm) {
  return make("li", { class: "vm", "data-vm": vm }, make("h3"), make("ol", { class: "slots" }));
}

function drawVm(node, name, vm, slots, first) {
  mark(node, "data-state", vm?.state ?? "unknown");
  const states = vm ? [vm.state !== "joined" && vm.state, vm.cordon, vm.speed && `speed ${figure(vm.speed)}`].filter(Boolean) : [];
  const state = states.length ? ` – ${states.join(", ")}` : "";
  say(
    node.firstChild,
    vm ? `${name}${state} · ${vm.slots_used} of ${vm.slots}${vm.provided ? " · on demand" : ""}` : name,
  );
  keyed(node.lastChild, slots, newSlot, (cell, slot, key) => drawSlot(cell, slot, key === first));
}

function newSlot(_, name) {
  return make(
    "li",
    { class: "slot", "data-slot": name },
    make("p", { class: "place" }, make("b"), make("span")),
    make("p", { class: "threads" }),
    make("p", { class: "use" }),
    make("span", { class: "gauge", "aria-hidden": "true" }),
  );
}

function drawSlot(node, slot, isFirst) {
  const [place, threads, use, gauge] = node.children;
  const bundles = Object.entries(slot.threads);
  const { word, free, bad } = standing(slot, bundles.length);
  const level = levelOf(slot.cpu);
  mark(node, "data-state", slot.state);
  mark(node, "data-free", free);
  mark(node, "data-bad", bad);
  mark(node, "data-full", slot.full);
  mark(node, "data-first", isFirst);
  mark(node, "data-level", level);
  mark(node, "data-threads", bundles.map(([task, n]) => `${task}:${n}`).join(","));
  say(place.firstChild, `${slot.vm}/${slot.slot}`);
  say(place.lastChild, [slot.full && "▣ exclusive", isFirst && "▼ first", word].filter(Boolean).join(" "));
  say(threads, bundles.map(([task, n]) => `${task} ×${n}`).join(", ") || (free ? "no thread" : ""));
  const leaving = slot.leaving ? `, ${some(slot.leaving, "thread")} leaving` : "";
  const crashes = slot.crashes ? some(slot.crashes, "crash", "crashes") : "";
  const used = known(slot.cpu)
    ? `${LEVELS[level].glyph} CPU ${percent(slot.cpu)}, memory ${percent(slot.memory)}`
    : "";
  say(use, [used + leaving, crashes].filter(Boolean).join(", "));
  mark(gauge, "data-none", !known(slot.cpu));
  fill(gauge, slot.cpu, slot.predicted_cpu);
}

// A slot without threads is free unless its worker is in trouble: one that has nothing to do any more exits.
function standing(slot, bundles) {
  const bad = slot.state === "quarantined" ? "act" : slot.state === "exited" && bundles > 0 ? "watch" : null;
  if (bad) return { word: `✗ ${slot.state}`, free: false, bad };
  if (slot.state === "withheld") return { word: "other topologies'", free: false, bad };
  if (slot.state === "profiling") return { word: "◌ profiling", free: false, bad };
  if (slot.state === "starting") return { word: "◌ starting", free: false, bad };
  if (bundles === 0 && slot.leaving) return { word: "◌ emptying", free: false, bad };
  return { word: bundles === 0 ? "free" : "", free: bundles === 0, bad };
}
