"""The control bar of an exported animation: play, pause, and a slider of time."""

import json
import re

# K3DInstance is in scope where k3d runs `additional_js_code`.
_SCRIPT = """
(function () {
  const plot = K3DInstance, motion = %s;
  if (motion.duration === 0) { return; }
  const bar = document.createElement("div");
  bar.id = "player";
  bar.style.cssText = "position:absolute; left:0; right:0; bottom:0; padding:8px 16px;" +
    "display:flex; gap:12px; align-items:center; font:14px sans-serif; color:#222;" +
    "background:rgba(245,245,245,0.9); border-top:1px solid #ccc; z-index:16777270";
  const button = document.createElement("button");
  button.style.cssText = "width:5em; font:inherit; cursor:pointer";
  const slider = document.createElement("input");
  Object.assign(slider, {type: "range", min: 0, max: motion.duration, step: "any"});
  slider.setAttribute("aria-label", "time");
  slider.style.cssText = "flex:1; cursor:pointer";
  const clock = document.createElement("span");
  clock.style.cssText = "min-width:9em; text-align:right; font-variant-numeric:tabular-nums";
  bar.append(button, slider, clock);
  plot.getWorld().targetDOMNode.appendChild(bar);

  const rate = motion.speed === 1 ? "" : `  (${motion.speed} × real time)`;
  const show = () => {
    const played = plot.parameters.time;
    button.textContent = plot.autoPlayed ? "Pause" : "Play";
    slider.value = played;
    clock.textContent = `t = ${(motion.start + motion.speed * played).toFixed(motion.digits)} s` +
      rate;
  };
  const toggle = () => (plot.autoPlayed ? plot.stopAutoPlay() : plot.startAutoPlay());
  button.onclick = () => { toggle(); button.blur(); };
  slider.oninput = () => { plot.stopAutoPlay(); plot.setTime(Number(slider.value)); };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.tagName === "INPUT" && event.target !== slider;
    if (event.key === " " && !typing) { event.preventDefault(); toggle(); }
  });
  plot.on(plot.events.TIME_CHANGE, show);
  plot.on(plot.events.AUTO_PLAY_CHANGE, show);
  plot.startAutoPlay();
  show();
})();
"""


def script(start: float, duration: float, speed: float | int) -> str:
    """JavaScript of the bar: `start` of the motion [s], playing `duration` [s], and `speed`."""
    digits = 2
    while digits < 9 and duration * speed * 10**digits < 100:
        digits += 1
    facts = {"start": start, "duration": duration, "speed": speed, "digits": digits}
    return _SCRIPT % json.dumps(facts)


def titled(page: str, title: str) -> str:
    """Replace the page's title, in which k3d writes the date."""
    safe = title.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"<title>.*?</title>", lambda _: f"<title>{safe}</title>", page, count=1)
