"""
Faults of a page's layout that a user sees: overlaps, what is cut off, and what is too small for a finger.
"""

from __future__ import annotations

import json
from typing import Any

from .abstract_page import AbstractPage

WINDOWS = ((1440, 900), (900, 700), (390, 844))
"""Sizes of a desktop, of half of one, and of a phone."""

FINGER_PIXELS = 44
"""The smallest width or height that a finger hits; one of the two may be smaller."""


async def faults_of(page: AbstractPage, *, taps: bool = False) -> list[str]:
    """
    Return what is wrong with the layout of a page, with the elements.

    :param taps: also controls that are too small for a finger.
    """
    return await lasting(page, _FAULTS % (json.dumps(taps), FINGER_PIXELS))


async def lasting(page: AbstractPage, script: str, *, looks: int = 20) -> list[str]:
    """Return the faults that a script finds at each of some looks: a page under way has others for a moment."""
    found: list[Any] = []
    for _ in range(looks):
        await page.evaluate(_DRAWN)
        found = await page.evaluate(script)
        if not found:
            break
    return [str(each) for each in found]


# Texts that are cut off need a title, which has the whole; lists and tables scroll inside of themselves.
_FAULTS = """(() => {
    const [taps, finger] = [%s, %d];
    const faults = [];
    const name = (each) => each.outerHTML.slice(0, 140);
    const isShown = (each) => each.checkVisibility({visibilityProperty: true, opacityProperty: true}) &&
        getComputedStyle(each).clipPath === 'none' && !each.closest('.visually-hidden, .xterm, .ap-player, .terminal-box, [inert], .facing thead');
    const clips = (each) => each && each !== document.body && each !== document.documentElement &&
        (getComputedStyle(each).overflowX !== 'visible' || clips(each.parentElement));
    if (document.documentElement.scrollWidth > innerWidth) faults.push('the page scrolls sideways');
    const all = [...document.querySelectorAll('body *')].filter(isShown);
    for (const each of all) {
        const {right, left, width, height} = each.getBoundingClientRect();
        if (width && height && (right > innerWidth + 1 || left < -1) && !clips(each.parentElement))
            faults.push('outside of the window: ' + name(each));
        const {overflowX} = getComputedStyle(each);
        const isCut = each.scrollWidth > each.clientWidth + 1 && /hidden|clip/.test(overflowX) && each.clientWidth;
        if (isCut && !each.matches('input, select') && !each.closest('[title]') && !each.querySelector('[title]'))
            faults.push('cut off: ' + name(each));
        // The page scrolls: a bar of the list's own would move its last row.
        if (each.matches('.scroll.facing') && each.scrollHeight > each.clientHeight) faults.push('scrolls by itself: ' + name(each));
    }
    const controls = all.filter((each) => each.matches('a, button, input, select, textarea, summary') && !each.closest('.log, .screen'));
    const boxes = controls.map((each) => [each, each.getBoundingClientRect()]).filter(([, box]) => box.width && box.height);
    boxes.forEach(([one, a], at) => {
        if (taps && a.height < finger - 0.5 && !one.closest('p, .check') && !one.matches('.brand, .skip'))
            faults.push('only ' + Math.round(a.height) + ' px high: ' + name(one));
        for (const [other, b] of boxes.slice(at + 1)) {
            if (one.contains(other) || other.contains(one)) continue;
            const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
            const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
            const isBeneath = [one, other].some((each) => each.closest('[popover], dialog, .menu-items, thead, .skip'));
            if (wide > 1 && high > 1 && !isBeneath) faults.push('overlap: ' + name(one) + ' and ' + name(other));
        }
    });
    return [...new Set(faults)].slice(0, 12);
})()"""

_FAULTS_OF_PARTS = """((selectors) => {
    const faults = [];
    const parts = selectors.flatMap((selector) => {
        const found = [...document.querySelectorAll(selector)].filter((each) => each.checkVisibility());
        if (!found.length) faults.push(`${selector} is not visible`);
        return found.map((element) => ({name: `${selector} “${element.innerText.slice(0, 30)}”`, element}));
    });
    const box = ({element}) => element.getBoundingClientRect();
    for (const part of parts) {
        const {left, top, right, bottom} = box(part);
        if (left < -1 || top < -1 || right > innerWidth + 1 || bottom > innerHeight + 1)
            faults.push(`${part.name} reaches beyond the window`);
        const {scrollWidth, clientWidth, scrollHeight, clientHeight} = part.element;
        if (clientWidth && (scrollWidth > clientWidth + 1 || scrollHeight > clientHeight + 2))
            faults.push(`${part.name} is cut off`);
    }
    parts.forEach((one, at) => parts.slice(at + 1).forEach((other) => {
        if (one.element.contains(other.element) || other.element.contains(one.element)) return;
        const [a, b] = [box(one), box(other)];
        const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (width > 1 && height > 1) faults.push(`${one.name} overlaps ${other.name}`);
    }));
    if (document.documentElement.scrollWidth > innerWidth) faults.push('the page scrolls sideways');
    return faults;
})(%s)"""
# Two frames: what was drawn last may be in the second.
_DRAWN = (
    "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
)


async def layout_faults(page: AbstractPage, *selectors: str) -> list[str]:
    """
    Return which parts are missing, cut off, beyond the window, or over each other, in each window.

    :param selectors: of the parts; one that is inside another one may overlap it.
    """
    faults: list[str] = []
    for width, height in WINDOWS:
        await page.resize(width, height)
        found = await lasting(page, _FAULTS_OF_PARTS % json.dumps(selectors))
        faults.extend(f"{width}x{height}: {each}" for each in found)
    return faults
