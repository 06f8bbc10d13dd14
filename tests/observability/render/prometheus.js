// Asks Prometheus what a panel asks, and makes Grafana's data frames of the answers.
import { FieldType, createDataFrame } from '@grafana/data';

const asked = new URLSearchParams(location.search);
const [prometheus, from, to] = ['prometheus', 'from', 'to'].map((name) => asked.get(name));
const variables = { job: '.+', gateway: '.+', server: asked.get('server'), ...JSON.parse(asked.get('windows')) };

export const range = { from: Number(from) * 1000, to: Number(to) * 1000 };

function concrete(expr) {
  return Object.entries(variables).reduce((text, [name, value]) => text.replaceAll(`$${name}`, value), expr);
}

function named(format, labels) {
  if (format === '__auto') return Object.values(labels).join(' ');
  return format.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => labels[label] ?? '');
}

async function ask(target) {
  const step = Math.max(0.5, (to - from) / 400);
  const at = target.instant ? { time: to } : { start: from, end: to, step };
  const way = target.instant ? 'query' : 'query_range';
  const query = new URLSearchParams({ query: concrete(target.expr), ...at });
  const answer = await (await fetch(`${prometheus}/api/v1/${way}?${query}`)).json();
  if (answer.status !== 'success') throw new Error(`${target.expr}: ${answer.error}`);
  return answer.data.result.map((series) => ({ labels: series.metric, samples: series.values ?? [series.value] }));
}

function finite(value) {
  const number = Number(value);
  return Number.isFinite(number) ? number : null;
}

// A frame per series, as the panels over time take them. What is no number is a gap.
function overTime(target, { labels, samples }) {
  const name = named(target.legendFormat, labels);
  const [times, values] = [samples.map(([at]) => at * 1000), samples.map(([, value]) => finite(value))];
  return createDataFrame({
    refId: target.refId,
    name,
    fields: [
      { name: 'Time', type: FieldType.time, values: times, config: {} },
      { name: 'Value', type: FieldType.number, values, labels, config: { displayNameFromDS: name } },
    ],
  });
}

// One frame with a row per series and a column per label.
function asTable(target, answer) {
  const columns = [...new Set(answer.flatMap(({ labels }) => Object.keys(labels)))];
  const values = (column) => answer.map(({ labels }) => labels[column] ?? '');
  return createDataFrame({
    refId: target.refId,
    fields: columns.map((name) => ({ name, type: FieldType.string, values: values(name), config: {} })),
  });
}

export async function frames(targets) {
  const answers = await Promise.all(targets.map(ask));
  return targets.flatMap((target, number) => {
    const answer = answers[number];
    return target.format === 'table' ? [asTable(target, answer)] : answer.map((one) => overTime(target, one));
  });
}
