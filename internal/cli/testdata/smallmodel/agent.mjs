// An agent that a small language model drives: an OpenAI-compatible chat endpoint with a system prompt. Arguments: the model's
// file, the port.
import http from "node:http";
import { getLlama, LlamaChatSession } from "node-llama-cpp";

const [file, port] = process.argv.slice(2);
const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });
const model = await llama.loadModel({ modelPath: file });
const context = await model.createContext({ contextSize: 1024, threads: 1 });
const sequence = context.getSequence();
const systemPrompt = "You are the weather assistant of a travel agency. Today's forecast for every city is sunny, 20 degrees, no rain.";

let turn = Promise.resolve();
const answer = (text) => (turn = turn.then(async () => {
  await sequence.clearHistory();
  const session = new LlamaChatSession({ contextSequence: sequence, systemPrompt });
  try {
    return await session.prompt(text, { maxTokens: 40, temperature: 0, repeatPenalty: { penalty: 1.15 } });
  } finally {
    session.dispose({ disposeSequence: false });
  }
}));

http.createServer(async (req, res) => {
  if (req.method === "GET") return res.end("ready");
  let body = "";
  for await (const part of req) body += part;
  try {
    const text = JSON.parse(body).messages.at(-1).content;
    const content = await answer(text);
    res.setHeader("Content-Type", "application/json");
    res.end(JSON.stringify({ choices: [{ message: { role: "assistant", content }, finish_reason: "stop" }] }));
  } catch (e) {
    turn = Promise.resolve();
    res.statusCode = 500;
    res.end(String(e));
  }
}).listen(Number(port), "127.0.0.1", () => console.log("listening"));
