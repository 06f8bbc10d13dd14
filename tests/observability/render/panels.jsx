// What each kind of panel draws. Lines and numbers are Grafana's components; its timelines and tables are part of the
// server's code and in no package, so those two are drawn here, with Grafana's colours and texts.
import React from 'react';
import { EventBusSrv } from '@grafana/data';
import {
  BigValue, BigValueColorMode, BigValueGraphMode, BigValueTextMode, PanelContextProvider, TimeSeries,
} from '@grafana/ui';

const context = { eventsScope: 'render', eventBus: new EventBusSrv(), sync: () => 0 };

function Lines({ panel, frames, range, width, height }) {
  return (
    <PanelContextProvider value={context}>
      <TimeSeries frames={frames} structureRev={1} timeRange={range} timeZone="utc" width={width} height={height}
        legend={{ calcs: [], ...panel.options.legend }} options={panel.options} />
    </PanelContextProvider>
  );
}

function Number({ panel, frames, theme, width, height }) {
  const field = frames[0]?.fields[1];
  const value = field
    ? { ...field.display(field.values.at(-1)), title: field.config.displayNameFromDS }
    : { text: panel.fieldConfig.defaults.noValue, numeric: NaN, color: theme.colors.text.secondary };
  return (
    <BigValue value={value} width={width} height={height} theme={theme} colorMode={BigValueColorMode.Value}
      graphMode={BigValueGraphMode.None} textMode={panel.options.textMode ?? BigValueTextMode.Value} />
  );
}

// Runs of one value: where each begins and ends.
function runs([time, value]) {
  const all = [];
  time.values.forEach((at, index) => {
    const last = all.at(-1);
    if (last?.value === value.values[index]) last.to = at;
    else {
      if (last) last.to = at;
      all.push({ value: value.values[index], from: at, to: at });
    }
  });
  return all;
}

function Timeline({ frames, range, theme, width, height }) {
  const names = 150, legend = 20;
  const tall = Math.min(28, (height - legend) / frames.length);
  const [from, to] = [range.from.valueOf(), range.to.valueOf()];
  const x = (at) => names + ((width - names - 8) * (at - from)) / (to - from);
  const kinds = new Map();
  const bars = frames.flatMap(({ fields }, row) =>
    runs(fields).map(({ value, from, to }) => {
      const { text, color } = fields[1].display(value);
      const fill = theme.visualization.getColorByName(color);
      if (color !== 'transparent') kinds.set(text, fill);
      const size = { width: Math.max(1, x(to) - x(from)), height: tall - 4 };
      return <rect key={`${row} ${from}`} x={x(from)} y={row * tall + 2} {...size} fill={fill} />;
    }));
  const label = { fill: theme.colors.text.primary, fontSize: 12 };
  return (
    <svg width={width} height={height}>
      {frames.map(({ fields }, row) => (
        <text key={row} x={2} y={(row + 0.5) * tall + 4} {...label}>{fields[1].config.displayNameFromDS}</text>
      ))}
      {bars}
      {[...kinds].map(([text, fill], place) => (
        <g key={text} transform={`translate(${names + place * 130} ${height - 8})`}>
          <rect width={12} height={4} y={-4} fill={fill} /><text x={18} {...label}>{text}</text>
        </g>
      ))}
    </svg>
  );
}

function Rows({ panel, frames, theme }) {
  const { excludeByName, renameByName } = panel.transformations[0].options;
  const columns = frames[0].fields.filter(({ name }) => !excludeByName[name]);
  const line = `1px solid ${theme.colors.border.weak}`;
  const cell = { padding: '2px 10px', textAlign: 'left', borderBottom: line, fontSize: 13 };
  return (
    <table style={{ width: '100%', borderCollapse: 'collapse' }}>
      <thead><tr>{columns.map(({ name }) => <th key={name} style={cell}>{renameByName[name] ?? name}</th>)}</tr></thead>
      <tbody>
        {columns[0].values.map((_, row) => (
          <tr key={row}>{columns.map(({ name, values }) => <td key={name} style={cell}>{values[row]}</td>)}</tr>
        ))}
      </tbody>
    </table>
  );
}

export const kinds = { timeseries: Lines, stat: Number, 'state-timeline': Timeline, table: Rows };
