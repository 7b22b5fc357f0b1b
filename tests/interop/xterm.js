// Renders the jobs of standard input, one JSON object on each line, with xterm.js.
//
// A job has columns, rows, and output in base64.  The answer has the place of the cursor, and the cells
// of each row: [character, width, foreground, background, attributes].
'use strict';

const {Terminal} = require(process.argv[2]);
const lines = require('readline').createInterface({input: process.stdin});

const FLAGS = [
  ['bold', 'isBold'], ['faint', 'isDim'], ['italic', 'isItalic'], ['underline', 'isUnderline'],
  ['blink', 'isBlink'], ['inverse', 'isInverse'], ['strikethrough', 'isStrikethrough'],
];

function colour(isDefault, isRGB, value) {
  if (isDefault) return null;
  return isRGB ? '#' + value.toString(16).padStart(6, '0') : value;
}

function shown(cell) {
  const flags = FLAGS.filter(([, name]) => cell[name]()).map(([name]) => name);
  return [
    cell.getChars() || ' ', cell.getWidth(),
    colour(cell.isFgDefault(), cell.isFgRGB(), cell.getFgColor()),
    colour(cell.isBgDefault(), cell.isBgRGB(), cell.getBgColor()), flags,
  ];
}

async function render(job) {
  const terminal = new Terminal({
    cols: job.columns, rows: job.rows, scrollback: 0, allowProposedApi: true, logLevel: 'off',
  });
  await new Promise(done => terminal.write(Buffer.from(job.output, 'base64'), done));
  const buffer = terminal.buffer.active;
  const rows = [];
  for (let y = 0; y < terminal.rows; y++) {
    const line = buffer.getLine(buffer.baseY + y);
    const row = [];
    for (let x = 0; x < terminal.cols; x++) row.push(shown(line.getCell(x)));
    rows.push(row);
  }
  const cursor = [buffer.cursorY, Math.min(buffer.cursorX, terminal.cols - 1)];
  terminal.dispose();
  return {rows, cursor};
}

(async () => {
  for await (const line of lines) {
    console.log(JSON.stringify(await render(JSON.parse(line))));
  }
})();
