"""A picture of one request: when each layer was computed, handed to the engine, and seen by the decoder."""

WIDTH, ROW, LEFT = 640, 26, 90
COLOURS = {"computed": "#4c72b0", "sent": "#dd8452", "arrived": "#55a868"}


def ticks(seconds):
    """Round times from 0 to there, at most six: multiples of 1, 2 or 5 times a power of ten."""
    step = next(step for power in range(-7, 10) for step in (10**power, 2 * 10**power, 5 * 10**power) if seconds <= 5 * step)
    return [number * step for number in range(int(seconds / step) + 1)]


def draw(events, path):
    """events: (what, layer, seconds of one clock)."""
    first, last = min(at for _, _, at in events), max(at for _, _, at in events)
    layers = 1 + max(layer for _, layer, _ in events)
    height = ROW * layers + 80
    scale = (WIDTH - LEFT - 30) / max(last - first, 1e-9)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="18" font-size="14">Layers of one prompt: {(last - first) * 1e3:.2f} ms from the first computed to the last there</text>',
    ]
    for number, (what, colour) in enumerate(COLOURS.items()):
        parts.append(f'<circle cx="{LEFT + number * 110}" cy="35" r="5" fill="{colour}"/><text x="{LEFT + 10 + number * 110}" y="39">{what}</text>')
    for layer in range(layers):
        y = 62 + layer * ROW
        parts.append(f'<text x="10" y="{y + 4}">layer {layer}</text><line x1="{LEFT}" y1="{y}" x2="{WIDTH - 30}" y2="{y}" stroke="#ddd"/>')
        places = {what: LEFT + (at - first) * scale for what, one, at in events if one == layer}
        if len(places) > 1:
            parts.append(f'<line x1="{min(places.values()):.1f}" y1="{y}" x2="{max(places.values()):.1f}" y2="{y}" stroke="#999" stroke-width="3"/>')
        for what, x in places.items():
            parts.append(f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="{COLOURS[what]}"><title>{what} at {(x - LEFT) / scale * 1e3:.3f} ms</title></circle>')
    parts.append("".join(
        f'<text x="{LEFT + at * scale:.0f}" y="{height - 12}" text-anchor="middle" fill="#555">{at * 1e3:g} ms</text>'
        for at in ticks(last - first)))
    with open(path, "w") as file:
        file.write("\n".join(parts) + "\n</svg>\n")
