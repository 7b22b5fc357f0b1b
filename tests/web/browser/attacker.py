"""
A site of an attacker, which a user of the console visits with the same browser.

Its page has functions for everything that a page can try against another origin, and reports each
attempt as ``opened`` or as the refusal.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.web.resource import Resource
from twisted.web.server import Site

from .page import Page

reactor: Any = _reactor

HOST = "attacker.example"

_PAGE = b"""<!doctype html>
<meta charset="utf-8">
<title>You have won</title>
<body>
<script>
const refused = (error) => 'refused: ' + (error && error.message || error);
async function attempt(work) {
    try { return await work() ? 'opened' : 'refused'; } catch (error) { return refused(error); }
}
self.attacks = {
    // A readable answer.
    read: (url) => attempt(async () => (await fetch(url, {credentials: 'include'})).text()),
    // An answer that cannot be read; the server may have obeyed nevertheless.
    blind: (url, method, type, body) => attempt(async () => {
        const options = {method, mode: 'no-cors', credentials: 'include', headers: {'Content-Type': type}};
        return (await fetch(url, {...options, ...(body && {body})})).type === 'opaque';
    }),
    cors: (url, method, headers, body) => attempt(async () => {
        const options = {method, credentials: 'include', headers};
        return (await fetch(url, {...options, ...(body && {body})})).ok;
    }),
    socket: (url, protocols) => attempt(() => new Promise((resolve, reject) => {
        const socket = new WebSocket(url, protocols);
        socket.onopen = () => { socket.send(new Uint8Array([0, 105, 100, 10])); resolve(true); };
        socket.onerror = () => reject(Error('the WebSocket does not open'));
    })),
    events: (url) => attempt(() => new Promise((resolve, reject) => {
        const source = new EventSource(url, {withCredentials: true});
        source.onopen = source.onmessage = () => resolve(true);
        source.onerror = () => { source.close(); reject(Error('no events')); };
    })),
    script: (url) => attempt(() => new Promise((resolve, reject) => {
        const script = document.createElement('script');
        Object.assign(script, {src: url, onload: () => resolve(true), onerror: () => reject(Error('not loaded'))});
        document.body.append(script);
    })),
    frame: (url) => attempt(() => new Promise((resolve) => {
        const frame = document.createElement('iframe');
        frame.onload = () => resolve(frame.contentDocument !== null);
        frame.src = url;
        document.body.append(frame);
    })),
    // The answer goes to a frame, so that this page stays; nothing in it can be read.
    form: (url, name, value) => attempt(() => new Promise((resolve) => {
        const frame = document.createElement('iframe');
        frame.name = 'answer' + document.forms.length;
        const form = document.createElement('form');
        Object.assign(form, {method: 'post', action: url, target: frame.name, enctype: 'text/plain'});
        const input = document.createElement('input');
        Object.assign(input, {type: 'hidden', name, value});
        form.append(input);
        document.body.append(frame, form);
        frame.onload = () => resolve(frame.contentDocument !== null && frame.contentDocument.URL !== 'about:blank');
        form.submit();
    })),
    window: (url) => attempt(() => { self.opened = open(url); return self.opened; }),
    reach: () => attempt(() => opened.document.body.innerText),
    message: () => attempt(() => { opened.postMessage({token: 'x'}, '*'); return !opened.closed; }),
};
</script>
"""


class _Trap(Resource):
    isLeaf = True

    def render(self, request: Any) -> bytes:
        request.setHeader(b"content-type", b"text/html; charset=utf-8")
        return _PAGE


class Attacker:
    """
    The attacker's server.

    :ivar port: its port on loopback.
    """

    port = 0

    async def start(self) -> None:
        """Begin to listen."""
        endpoint = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        self._listening = await endpoint.listen(Site(_Trap()))
        self.port = self._listening.getHost().port

    async def stop(self) -> None:
        await self._listening.stopListening()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/"


async def attack(page: Page, name: str, *arguments: object) -> str:
    """Return the outcome of one of the page's attacks."""
    words = ", ".join(json.dumps(each) for each in arguments)
    outcome = await page.evaluate(f"attacks.{name}({words})")
    return str(outcome)
