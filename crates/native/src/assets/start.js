// Puts the address under which the reader has found this service into the examples of the start page.
"use strict";

for (const place of document.querySelectorAll(".address")) place.textContent = location.origin;
