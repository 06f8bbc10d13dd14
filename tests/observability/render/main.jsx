// Shows one dashboard with what a Prometheus has to say, and says when all of it is drawn.
import React, { useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { createTheme, dateTime, ThemeContext } from '@grafana/data';
import { GlobalStyles, PanelChrome } from '@grafana/ui';
import { shown } from './fields.js';
import { kinds } from './panels.jsx';
import { frames, range } from './prometheus.js';

const COLUMN = 66, ROW = 38, GAP = 8;
const theme = createTheme({ colors: { mode: 'dark' } });
const [from, to] = [dateTime(range.from), dateTime(range.to)];
const time = { from, to, raw: { from, to } };

function place({ x, y, w, h }) {
  return { position: 'absolute', left: x * COLUMN, top: y * ROW, width: w * COLUMN - GAP, height: h * ROW - GAP };
}

function Panel({ panel, data }) {
  const Kind = kinds[panel.type];
  const here = place(panel.gridPos);
  const given = { panel, frames: data, range: time, theme };
  return (
    <div style={here}>
      <PanelChrome title={panel.title} description={panel.description} width={here.width} height={here.height}>
        {(width, height) => <Kind {...given} width={width} height={height} />}
      </PanelChrome>
    </div>
  );
}

function Heading({ panel }) {
  return <h4 style={{ ...place(panel.gridPos), color: theme.colors.text.primary, paddingTop: 6 }}>{panel.title}</h4>;
}

function Board({ board, data }) {
  const last = Math.max(...board.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  useEffect(() => {
    // The components measure themselves, and draw in the frame after that.
    requestAnimationFrame(() => requestAnimationFrame(() => { window.drawn = true; }));
  }, []);
  return (
    <div style={{ padding: 16, width: 24 * COLUMN }}>
      <h2 style={{ color: theme.colors.text.primary }}>{board.title}</h2>
      <div style={{ position: 'relative', height: last * ROW }}>
        {board.panels.map((panel) => panel.type === 'row'
          ? <Heading key={panel.id} panel={panel} />
          : <Panel key={panel.id} panel={panel} data={data.get(panel.id)} />)}
      </div>
    </div>
  );
}

async function start() {
  const board = await (await fetch(`/${new URLSearchParams(location.search).get('board')}`)).json();
  const asking = board.panels.filter(({ type }) => type !== 'row').map(async (panel) => {
    const answered = await frames(panel.targets);
    const says = panel.fieldConfig.defaults.noValue || answered.some(({ length }) => length);
    if (!says) throw new Error(`${panel.title}: no data`);
    return [panel.id, shown(answered, panel.fieldConfig, theme)];
  });
  const data = new Map(await Promise.all(asking));
  createRoot(document.getElementById('root')).render(
    <ThemeContext.Provider value={theme}><GlobalStyles /><Board board={board} data={data} /></ThemeContext.Provider>);
}

start().catch((error) => { window.failed = String(error.stack ?? error); });
