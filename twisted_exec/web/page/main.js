/** Start of the page: read the configuration and show the first view. */

const response = await fetch("config.json", { cache: "no-store" });
const config = await response.json();

document.getElementById("view").textContent = `twisted-exec ${config.version}`;
