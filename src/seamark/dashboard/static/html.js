// What every module draws with: Preact's elements, written as text by htm.
import { h, render, Component, Fragment, createRef } from "./vendor/preact.mjs";
import htm from "./vendor/htm.mjs";

export const html = htm.bind(h);
export { render, Component, Fragment, createRef };
