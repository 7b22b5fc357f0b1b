"""
The web console in a real Chromium.

The modules drive the browser by the Chrome DevTools Protocol over a pair of pipes, without a further
dependency; https://chromedevtools.github.io/devtools-protocol/ describes the methods and events.
"""
