(()=>{async function K(r){let t=r instanceof Response?await r.arrayBuffer():r,{instance:e}=await WebAssembly.instantiate(t);return o=>new X(e.exports,o)}var X=class{#t;#r;constructor(t,e="full"){if(this.#t=t,this.#r=t.battery_new(e==="nws"?1:0),this.#r===0)throw new RangeError("there are too many batteries")}update(t){return this.#t.battery_update(this.#r,t)===1}forecast(t=kt){if(this.#t.battery_forecast(this.#r,t)===0)return null;let e=new Float64Array(this.#t.memory.buffer,this.#t.numbers(),St),o=s=>Number.isNaN(e[s])?null:e[s],n=(s,i)=>({value:o(s),mse:o(s+1),mae:o(s+2),recent_mse:o(s+3),recent_mae:o(s+4),method:this.#e(i)});return{count:e[0],level:t,mean:n(1,0),median:n(6,1),lower:o(11),upper:o(12)}}free(){this.#t.battery_free(this.#r),this.#r=0}#e(t){let{memory:e,method:o,method_length:n}=this.#t;return String.fromCharCode(...new Uint8Array(e.buffer,o(t),n(t)))}},kt=.9,St=13;function q(r){let t=0;return r.addEventListener("visibilitychange",()=>{r.hidden&&(t+=1)}),{get lapses(){return t},async ready(e){r.hidden&&await new Promise((o,n)=>{let s=()=>{r.hidden&&!e?.aborted||(r.removeEventListener("visibilitychange",s),e?.removeEventListener("abort",s),e?.aborted?n(e.reason):o())};r.addEventListener("visibilitychange",s),e?.addEventListener("abort",s),s()})}}}function J(r,t,e){if(!(Number.isFinite(t)&&0<t))return null;let o=r*8,n=Number.isFinite(e)&&0<e&&e<t,s=o/t;return{raw:s,corrected:n?o/(t-e):s}}var R=class{#t;constructor(t){this.#t=t}update(t){return this.#t.update(Math.log(t))}forecast(){let t=this.#t.forecast();if(t===null)return null;let{count:e,level:o,lower:n,upper:s}=t,{value:i,mae:l,method:a}=t.mean,f=u=>u===null?null:Math.exp(u);return{count:e,level:o,value:f(i),lower:f(n),upper:f(s),error:l===null?null:Math.expm1(l),method:a}}free(){this.#t.free()}};var E=class extends Error{constructor(t){super(`took more than ${t/1e3} s`),this.name="TimedOut"}};function w(r,t,e){return new Promise((o,n)=>{let s=new AbortController,i=(u,m)=>{clearTimeout(f),t?.removeEventListener("abort",a),u(m)},l=u=>{i(n,u),s.abort(u)},a=()=>l(t.reason),f=setTimeout(()=>l(new E(r)),r);if(t?.aborted)return a();t?.addEventListener("abort",a,{once:!0}),new Promise(u=>u(e(s.signal))).then(u=>i(o,u),u=>i(n,u))})}var B=class{#t;#r;#e;constructor({mirrors:t,budget_bytes:e,seed:o}){if(!(k.least<=e&&e<=k.most))throw new RangeError("The budget of a mirror is 256 KiB to 256 MiB.");this.#t=e,this.#r=Tt(o);let n=Et(e);this.#e=Array.from({length:t},()=>({rung:tt(n),top:n,spent_bytes:0,spent_s:0,probes:0,counted:0,done:!1}))}round(){let t=[...this.#e.keys()].filter(e=>0<this.bytes(e));for(let e=t.length-1;0<e;e-=1){let o=Math.floor(this.#r()*(e+1));[t[e],t[o]]=[t[o],t[e]]}return t}bytes(t){let{rung:e,spent_bytes:o,spent_s:n,counted:s,done:i}=this.#e[t];return i||Z<=s||et<=s&&Q<n?0:T[e]+M<=this.#t-o?T[e]:0}spentBytes(t){return this.#e[t].spent_bytes}leftBytes(t){return Math.max(0,this.#t-this.#e[t].spent_bytes-M)}book(t,e,o){let n=this.#e[t];if(n.spent_bytes+=e+M,n.spent_s+=o,n.probes+=1,n.rung<n.top){if(o<At)return n.rung+=1,!1;n.top=n.rung}return n.probes===1?!1:(n.counted+=1,!0)}bookFailure(t,e){this.#e[t].spent_bytes+=e+M}finish(t){this.#e[t].done=!0}progress(){let t=this.#e.map((e,o)=>this.bytes(o)===0?1:Math.max(e.spent_bytes/this.#t,e.counted/Z,e.spent_s/Q));return t.length===0?1:t.reduce((e,o)=>e+Math.min(1,o),0)/t.length}},k={least:2**18,usual:2**23,most:2**28},M=1024;function Et(r){let t=0;for(let e=1;e<T.length;e+=1){let o=(et+1)*(T[e]+M);for(let n=tt(e);n<e;n+=1)o+=T[n]+M;o<=r&&(t=e)}return t}function tt(r){return Math.min(r,1)}function Tt(r){let t=r>>>0;return()=>{t=t+1831565813>>>0;let e=Math.imul(t^t>>>15,t|1);return e^=e+Math.imul(e^e>>>7,e|61),((e^e>>>14)>>>0)/2**32}}var T=Array.from({length:10},(r,t)=>2**(15+t)),et=8,Z=24,At=.5,Q=30;function ot(r,t){let e=r.map(a=>({...a,...a.failure?null:Nt(a,t)})),o=e.filter(a=>Number.isFinite(a.time_s)).sort((a,f)=>a.time_s-f.time_s),n=e.filter(a=>!Number.isFinite(a.time_s)).map(a=>({...a,rank:null,failure:a.failure??"too few probes came through"})),s=o.map((a,f)=>({...a,rank:f+1,close:Bt(o[0],a)})),i=s.filter(a=>a.close).length;return{verdict:s.length===0?"none":s.length===1?"only":i<2?"first":"close",close:i,mirrors:[...s,...n]}}function Nt({url:r,rtt:t,goodput:e},o){if(!(0<e?.value))return null;let n=Rt(r)*Math.max(0,t?.value??0),s=a=>n+(0<a?o*8/a:1/0),i=s(e.value),l=Number.isFinite(e.lower)&&Number.isFinite(e.upper);return{time_s:i,lower_s:l?Math.min(i,s(e.upper)):null,upper_s:l?Math.max(i,s(e.lower)):null}}function Rt(r){return r.startsWith("https:")?3:2}function Bt(r,t){return r===t?!0:rt(r.time_s,t)||rt(t.time_s,r)}function rt(r,{lower_s:t,upper_s:e}){return t===null||t<=r&&r<=e}async function nt({mirrors:r,size_bytes:t,budget_bytes:e,seed:o,signal:n,onProgress:s=()=>{},battery:i,open:l,explain:a,attention:f}){let u=new B({mirrors:r.length,budget_bytes:e,seed:o}),m=r.map(d=>new W(d,i)),x=(d=null)=>{let p=m.map((h,b)=>({url:h.mirror.url,state:h.word(b===d),probes:h.probes}));s({share:u.progress(),mirrors:p})},N=async(d,p)=>{let h=m[d];h.stop(),u.finish(d),h.failure=await Ft(a,h.mirror,p,n)};try{x(),await Promise.all(m.map(async(d,p)=>{try{if(d.mirror.refusal)throw new Error(d.mirror.refusal);await d.open(l,n)}catch(h){n?.throwIfAborted(),await N(p,h)}x()}));for(let d=u.round();d.length!==0;d=u.round())for(let p of d)await f.ready(n),n?.throwIfAborted(),x(p),await I(m[p],p),x();return ot(m.map((d,p)=>d.result(u.spentBytes(p))),t)}finally{for(let d of m)d.free()}async function I(d,p){let h=d.source?.ignores_range,b=h?u.leftBytes(p):u.bytes(p),{lapses:_}=f;try{d.source===null&&await d.open(l,n);let{parts:v,rtts_s:P}=await w(Ct,n,G=>d.source.probe(b,G)),D=h?b:v[0].bytes,_t=u.book(p,D,v.reduce((G,Mt)=>G+Mt.took_s,0))||h;d.learn(v,P,_t&&f.lapses===_),h&&u.finish(p)}catch(v){n?.throwIfAborted(),u.bookFailure(p,b),(d.fail()||h)&&await N(p,v)}}}var W=class{source=null;probes=0;failures=0;failure=null;#t=0;#r;#e;constructor(t,e){this.mirror=t,this.#r=e(),this.#e=new R(e())}async open(t,e){this.source=await w(st,e,async o=>{let n=await t(this.mirror,o);return o.aborted&&n.close(),n})}learn(t,e,o){this.#t=0,this.probes+=t.length;let n=this.#r.forecast()?.median.value??e[0];if(o){for(let s of e)this.#r.update(s);for(let{bytes:s,took_s:i,streamed:l}of t){let a=J(s,i,l?0:n);a!==null&&this.#e.update(a.corrected)}}}fail(){return this.failures+=1,this.#t+=1,this.stop(),zt<=this.#t}stop(){this.source?.close(),this.source=null}word(t){return this.failure!==null?"failed":t?"probing":this.source===null&&this.probes===0?"opening":"waiting"}result(t){let{url:e,kind:o}=this.mirror,n=this.#e.forecast(),s=Ut<=(n?.count??0);return{url:e,kind:o,rtt:s?Lt(this.#r.forecast()):null,goodput:s?n:null,bytes:t,probes:this.probes,failures:this.failures,failure:this.failure}}free(){this.stop(),this.#r.free(),this.#e.free()}};function Lt({count:r,level:t,lower:e,upper:o,median:{value:n,mae:s,method:i}}){return{count:r,level:t,value:n,lower:e,upper:o,error:s,method:i}}async function Ft(r,t,e,o){if(t.refusal||e instanceof E)return t.refusal??e.message;try{return await w(st,o,n=>r(t,e,n))}catch{return e.message}}var st=6e3,Ct=1e4,zt=2,Ut=4;var L=class r{#t;#r;#e;ignores_range=!1;static async open(t,{signal:e,fetch:o=globalThis.fetch.bind(globalThis),now:n=()=>performance.now()}={}){let s=new r(t,o,n),{response:i}=await s.#o(1,e);return s.ignores_range=i.status===200&&i.headers.get("content-length")!=="1",s.ignores_range?await i.body?.cancel():await i.arrayBuffer(),s}constructor(t,e,o){this.#t=t,this.#r=e,this.#e=o}async probe(t,e){let{response:o,asked_ms:n,answered_ms:s}=await this.#o(t,e),i=await this.#s(o,t,e),l=[(s-n)/1e3],a=i.at(-1);if(!a||a.got<Dt)throw new Error("the file is too small to measure by");return this.ignores_range?{parts:Ot(i),rtts_s:l}:{parts:[{bytes:a.got,took_s:(a.at_ms-n)/1e3,streamed:!1}],rtts_s:l}}close(){}async#o(t,e){let o=this.#e(),n=await this.#r(this.#t,{signal:e,mode:"cors",cache:"no-store",credentials:"omit",referrerPolicy:"no-referrer",headers:{range:`bytes=0-${t-1}`}}),s=this.#e();if(n.status!==206&&n.status!==200)throw await n.body?.cancel(),new Error(n.status===416?"the file is empty":`answered with status ${n.status}`);return{response:n,asked_ms:o,answered_ms:s}}async#s(t,e,o){o?.throwIfAborted();let n=t.body.getReader(),s=()=>n.cancel(o.reason).catch(()=>{});o?.addEventListener("abort",s,{once:!0});let i=[],l=this.#e(),a=0;try{for(;a<e;){let{done:f,value:u}=await n.read();if(o?.throwIfAborted(),f||(a+=u.byteLength,i.push({got:a,at_ms:this.#e()}),this.ignores_range&&Pt<this.#e()-l))break}}finally{o?.removeEventListener("abort",s),n.cancel().catch(()=>{})}return i}};async function at(r,t,{signal:e,fetch:o=globalThis.fetch.bind(globalThis)}={}){if(!(t instanceof TypeError))return t.message;try{return await o(r,{method:"HEAD",mode:"no-cors",cache:"no-store",credentials:"omit",referrerPolicy:"no-referrer",signal:e}),"the site does not allow measuring from other pages"}catch{return globalThis.crossOriginIsolated?"could not be reached, or does not allow measuring from other pages":"could not be reached"}}function Ot(r){let t=r.at(-1).got,e=[],o=null;for(let n of r)n.got<t/4||o!==null&&(n.got-o.got<t*.75/It||n.at_ms<=o.at_ms)||(o!==null&&e.push({bytes:n.got-o.got,took_s:(n.at_ms-o.at_ms)/1e3,streamed:!0}),o=n);return e}var It=12,Pt=8e3,Dt=2**14;function it(r){return/^(.*\.)?localhost$/.test(r)||/^127(\.\d+){3}$/.test(r)||r==="[::1]"}function C(r,{secure:t=!1}={}){let e=Array.isArray(r)?r.map(String):String(r??"").split(/[\s,]+/),o=new Map;for(let n of e.map(s=>s.trim()).filter(Boolean)){let s=Gt(n,t);if(o.set(s.url,s),lt<o.size)throw new RangeError(`At most ${lt} mirrors are compared.`)}if(o.size===0)throw new RangeError("Give the address of at least one mirror.");return[...o.values()]}function F(r){return r.replace(/^[a-z]+:\/\//,"").replace(/\/$/,"")}function ct(r,t){let e=o=>F(o).split("/")[0];return t.filter(o=>e(o)===e(r)).length<2?e(r):F(r)}function Gt(r,t){let e;try{e=new URL(/^[a-z][a-z0-9+.-]*:\/\//i.test(r)?r:`https://${r}`)}catch{return{url:r.slice(0,ut),kind:"download",refusal:"is no address"}}let o=/^wss?:$/.test(e.protocol);o&&(e=new URL(e.href.replace(/^ws/,"http"))),e.hash="";let n=o||e.pathname.endsWith("/")?"station":"download";return{url:e.href,kind:n,refusal:Xt(e,t)}}function Xt(r,t){return/^https?:$/.test(r.protocol)?r.username||r.password?"an address with a user name or password is not asked":ut<r.href.length?"the address is too long":t&&r.protocol==="http:"&&!it(r.hostname)?"a page that came by https cannot measure what is served by http":null:`${r.protocol} cannot be measured, only http: and https:`}var lt=32,ut=2e3;function ft(r){let t=Ht(),e=q(document),o=null;return async function(s={}){let{mirrors:i,size_bytes:l,budget_bytes:a=k.usual,seed:f=Vt(),signal:u,onProgress:m}=s;if(!(Number.isFinite(l)&&1<=l))throw new RangeError("size_bytes is the size of the file, at least 1.");let x=C(i,{secure:location.protocol==="https:"});o??=w(j,void 0,h=>Wt(r,h));let N=await w(j,u,()=>o).catch(h=>{throw o=null,h}),I=x.some(({kind:h,refusal:b})=>h==="station"&&!b)?await w(j,u,()=>jt(r)):null;return nt({mirrors:x,size_bytes:l,budget_bytes:a,seed:f,signal:u,onProgress:m,battery:N,open:({kind:h,url:b},_)=>(h==="station"?I:L).open(b,{signal:_}),explain:async({kind:h,url:b},_,v)=>{let P=h==="station"?_.message:await at(b,_,{signal:v});return await new Promise(D=>setTimeout(D)),t.has(new URL(b).host)?Yt:P},attention:e})}}async function Wt(r,t){let e=await fetch(new URL("forecast.wasm",r),{signal:t,credentials:"omit"}).catch(()=>null);if(!e?.ok)throw new Error(`The forecaster could not be loaded from ${r.host}.`);try{return await K(e)}catch(o){throw o instanceof WebAssembly.CompileError?new Error("This page's Content-Security-Policy does not allow WebAssembly: its script-src needs 'wasm-unsafe-eval'."):o}}async function jt(r){if(window.barographMirrors.Station)return window.barographMirrors.Station;let t=document.createElement("script");return t.src=new URL("mirrors-stations.js",r).href,await new Promise((e,o)=>{t.onload=e,t.onerror=()=>o(new Error(`What measures stations could not be loaded from ${r.host}.`)),document.head.append(t)}).finally(()=>t.remove()),window.barographMirrors.Station}function Ht(){let r=new Set;return document.addEventListener("securitypolicyviolation",({effectiveDirective:t,blockedURI:e})=>{if(!(t!=="connect-src"||Kt<=r.size))try{r.add(new URL(e).host)}catch{}}),r}function Vt(){return crypto.getRandomValues(new Uint32Array(1))[0]}var Yt="this page's own Content-Security-Policy does not allow asking it (connect-src)",j=15e3,Kt=1e3;function V(r){let t=/^([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-z]*)$/.exec(String(r??"").trim().slice(0,Zt));if(!t)throw new RangeError("A size is a number and a unit, such as 700 MB or 4.5 GiB.");let[,e,o]=t,n=qt.get(o.toLowerCase());if(n===void 0){let i=/^[kmgt]$/i.test(o)?`${o.toUpperCase()}B or ${o.toUpperCase()}iB`:"B, kB, MB, GB, TB, KiB, MiB, GiB or TiB";throw new RangeError(`“${o}” is no unit of size: write ${i}.`)}let s=Math.round(Number(e)*n);if(s<1)throw new RangeError("A size is at least 1 byte.");if(Jt<s)throw new RangeError("A size is at most 1000 TB.");return s}function A(r){let t=H.filter(([,i])=>i<=r&&r*10%i===0),[e,o]=t.reduce((i,l)=>i[1]<l[1]?l:i,["B",1]);if(r/o<1e4)return`${r/o} ${e}`;let[n,s]=H.filter(([i,l])=>!i.includes("i")&&l<=r).at(-1);return`${Number((r/s).toPrecision(3))} ${n}`}var H=[["B",1],["kB",1e3],["KiB",2**10],["MB",1e6],["MiB",2**20],["GB",1e9],["GiB",2**30],["TB",1e12],["TiB",2**40]],qt=new Map([["",1],["byte",1],["bytes",1],...H.map(([r,t])=>[r.toLowerCase(),t])]),Jt=1e15,Zt=40;function c(r,t={},...e){let o=document.createElement(r);for(let[n,s]of Object.entries(t))o.setAttribute(n,s);return o.append(...e),o}function $(r,t){r.textContent!==t&&(r.textContent=t)}function Qt(r,t){let e=oe[r];if(!e)return{factor:1,label:r};let o=Math.abs(t);return e.find(n=>n.from<=o)??e[e.length-1]}function y(r,t){if(!Number.isFinite(r))return z;let e=Qt(t,r);return re(te(r,e),e.label)}function te(r,t){return Number.isFinite(r)?ee(r*t.factor,t.extra):z}function ee(r,t=0){let e=Math.abs(r);if(e===0)return"0";if(e<.001||1e9<=e)return r.toExponential(2).replace("-",bt);let o=e<.01?5:e<.1?4:e<1?3:e<10?2:e<100?1:0;return mt(r.toFixed(o+t))}function dt(r){return Number.isFinite(r)?mt(String(Math.trunc(r))):z}function ht(r){if(!Number.isFinite(r))return z;let t=Math.max(0,Math.floor(r));return t<60?`${t}${g}s`:t<3600?`${Math.floor(t/60)}${g}min ${t%60}${g}s`:t<86400?`${Math.floor(t/3600)}${g}h ${Math.floor(t%3600/60)}${g}min`:`${Math.floor(t/86400)}${g}d ${Math.floor(t%86400/3600)}${g}h`}function pt(r){return Number.isFinite(r)?`${Math.round(r*1e3)/10}${g}%`:""}var z="–";function re(r,t){return t?`${r}${g}${t}`:r}function mt(r){let[t,e]=r.replace("-",bt).split("."),o=t.replace(/\B(?=(\d{3})+(?!\d))/g,g);return e===void 0?o:`${o}.${e}`}var g=" ",bt="−";var oe={s:[{from:120,factor:1/60,label:"min"},{from:1,factor:1,label:"s"},{from:.001,factor:1e3,label:"ms"},{from:0,factor:1e6,label:"µs"}],"bit/s":[{from:1e9,factor:1e-9,label:"Gbit/s"},{from:1e6,factor:1e-6,label:"Mbit/s"},{from:1e3,factor:.001,label:"kbit/s"},{from:0,factor:1,label:"bit/s"}],bytes:[{from:2**40,factor:2**-40,label:"TiB",extra:1},{from:2**30,factor:2**-30,label:"GiB",extra:1},{from:2**20,factor:2**-20,label:"MiB"},{from:2**10,factor:2**-10,label:"KiB"},{from:0,factor:1,label:"B"}],ratio:[{from:0,factor:100,label:"%"}]};var gt=`/* The colours of the station's page (../page.css). */
:host {
  --card: #f8faf7;
  --sheet: #fcfdfb;
  --ahead: #f1f4ef;
  --minor: #e1ece4;
  --major: #bfd6c7;
  --edge: #8fb09b;
  --rule: #cbd6ce;
  --text: #1b2420;
  --label: #566560;
  --measured: #3b2c8f;
  --forecast: #c2560c;
  --forecast-text: #a04404;
  --band: rgb(220 120 30 / 0.3);
  --failure: #7a1f3d;
  --good: #1d7a4f;
  --trouble: #fff0d9;
  display: block;
  container-type: inline-size;
  color-scheme: light;
  color: var(--text);
  font: 14px/1.4 system-ui, sans-serif;
  font-variant-numeric: tabular-nums;
  text-align: start;
}
:host([data-theme='dark']) {
  --card: #141b19;
  --sheet: #111816;
  --ahead: #17201d;
  --minor: #1a2521;
  --major: #2a3b34;
  --edge: #4d6a5d;
  --rule: #26332e;
  --text: #e3ebe6;
  --label: #93a59c;
  --measured: #a9a5ff;
  --forecast: #f39a4a;
  --forecast-text: #f5a55c;
  --band: rgb(243 154 74 / 0.35);
  --failure: #ff8fa8;
  --good: #5fcf9b;
  --trouble: #3a2a12;
  color-scheme: dark;
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
section {
  background: var(--card);
  border: 1px solid var(--rule);
  border-radius: 3px;
  padding: 0.8rem 1rem 0.9rem;
}
header {
  display: flex;
  align-items: center;
  gap: 0.75rem;
}
h2 {
  flex: 1;
  margin: 0;
  font-size: 1.1rem;
  font-weight: 650;
}
h2 small { font-weight: 400; color: var(--label); }
p { margin: 0.25rem 0 0; }
.cost { color: var(--label); font-size: 0.86rem; }
button {
  font: inherit;
  color: inherit;
  background: var(--card);
  border: 1px solid var(--rule);
  border-radius: 3px;
  padding: 0.25rem 0.8rem;
  min-height: 2.25rem;
  cursor: pointer;
}
button:hover { border-color: var(--edge); }
.go { background: var(--measured); border-color: var(--measured); color: var(--card); font-weight: 600; }
[data-state='done'] .go { background: none; border-color: var(--rule); color: inherit; font-weight: 400; }
:focus-visible { outline: 2px solid var(--measured); outline-offset: 2px; }
a { color: var(--measured); }
.bar { display: flex; align-items: center; gap: 0.75rem; margin-top: 0.6rem; }
progress {
  flex: 1;
  appearance: none;
  height: 0.6rem;
  border: 1px solid var(--edge);
  border-radius: 2px;
  background: var(--sheet);
  overflow: hidden;
}
progress::-webkit-progress-bar { background: var(--sheet); }
progress::-webkit-progress-value { background: var(--measured); }
progress::-moz-progress-bar { background: var(--measured); }
.turns { list-style: none; margin: 0.6rem 0 0; padding: 0; font-size: 0.86rem; }
.turns li {
  display: flex;
  justify-content: space-between;
  gap: 1rem;
  padding: 0.15rem 0.4rem;
  border-left: 3px solid transparent;
}
.turns li + li { border-top: 1px solid var(--minor); }
.turns li[data-state='probing'] { border-left-color: var(--measured); background: var(--ahead); }
.turns li > :last-child { color: var(--label); white-space: nowrap; }
.turns li[data-state='failed'] > :last-child { color: var(--failure); }
.verdict { font-size: 1.05rem; font-weight: 600; overflow-wrap: anywhere; }
.verdict:not(:empty) { margin-top: 0.7rem; padding: 0.5rem 0.75rem; border-left: 4px solid var(--edge); background: var(--ahead); }
.verdict.first, .verdict.only { border-left-color: var(--good); }
.verdict.close { border-left-color: var(--forecast); background: var(--trouble); }
.verdict.none, .verdict.trouble { border-left-color: var(--failure); }
.table { margin-top: 0.7rem; }
table { width: 100%; border-collapse: collapse; background: var(--sheet); border: 1px solid var(--rule); }
th, td { padding: 0.45rem 0.6rem; text-align: right; font-weight: 400; vertical-align: top; }
thead th { background: var(--ahead); color: var(--label); font-size: 0.76rem; white-space: nowrap; }
tbody tr { border-top: 1px solid var(--minor); }
.place, th:first-child { width: 2.4rem; text-align: right; color: var(--label); }
.name, th:nth-child(2), .time, th:nth-child(3), .reason { text-align: left; }
.name { width: 23%; overflow-wrap: anywhere; }
.mirror { font-weight: 600; }
.mirror small { font-weight: 400; color: var(--label); font-size: 0.85em; }
.name small { display: inline-block; }
.time { width: 32%; }
.time strong { font-size: 1.1rem; color: var(--forecast-text); margin-right: 0.6rem; white-space: nowrap; }
.aside { color: var(--label); font-size: 0.82rem; white-space: nowrap; }
svg { display: block; margin-top: 0.25rem; overflow: visible; }
.axis { stroke: var(--major); }
.band { fill: var(--band); }
.mark { fill: var(--forecast); }
.goodput, .rtt, .probes, .used { white-space: nowrap; }
.trust { display: block; white-space: normal; line-height: 1.2; }
.first .place { color: var(--good); font-weight: 700; }
.tied .place { color: var(--forecast-text); font-weight: 700; }
.first { box-shadow: inset 3px 0 var(--good); }
.tied { box-shadow: inset 3px 0 var(--forecast); }
.reason { color: var(--failure); }
.failed .mirror { font-weight: 400; }
details { margin-top: 0.7rem; color: var(--label); font-size: 0.86rem; }
summary { cursor: pointer; }
details ul { margin: 0.4rem 0 0; padding-left: 1.2rem; max-width: 46rem; }
details li { margin-top: 0.25rem; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }

@container (max-width: 40rem) {
  section { padding-inline: 0.7rem; }
  table, tbody { display: block; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  tbody tr { display: grid; grid-template-columns: 1.7rem repeat(2, 1fr); gap: 0.1rem 0.5rem; padding: 0.5rem 0.6rem; }
  tbody tr > * { padding: 0; text-align: left; width: auto; }
  .place { grid-row: span 4; }
  .name, .time, .reason { grid-column: 2 / -1; }
  .place, .name, .time { width: auto; text-align: left; }
  .time { display: flex; flex-wrap: wrap; align-items: baseline; }
  .goodput, .rtt, .probes, .used { font-size: 0.82rem; }
  .goodput::before, .rtt::before, .probes::before, .used::before { color: var(--label); }
  .goodput::before { content: 'Goodput '; }
  .rtt::before { content: 'Round trip '; }
  .probes::before { content: 'Probes '; }
  .used::before { content: 'Used '; }
  button { min-width: 2.75rem; }
}
@media (forced-colors: active) {
  svg { forced-color-adjust: none; }
}
`;function wt({verdict:r,close:t,mirrors:e}){if(r==="none")return"No mirror could be measured.";let o=e.map(a=>a.url),n=a=>ct(o[a],o),s=a=>S(e[a].time_s);if(r==="only")return`${n(0)}: about ${s(0)}.${e.length===1?"":" No other could be measured."}`;if(r==="first")return`${n(0)} is fastest: about ${s(0)}, against ${s(1)} for the next.`;let i=t===2?`${n(0)} and ${n(1)}`:`${n(0)} and ${t-1} others`,l=s(0)===s(t-1)?s(0):`${s(0)} to ${s(t-1)}`;return`Too close to call: ${i}, about ${l}.`}function S(r){return Number.isFinite(r)?r<59.95?y(r,"s"):ht(Math.round(r)):y(r,"s")}function yt({lower_s:r,upper_s:t}){return r===null?"interval not known yet":t===1/0?`${S(r)} or longer`:`${S(r)} to ${S(t)}`}var U=class{#t;#r;#e;#o=null;constructor(t,e,o){this.#t=e,this.#r=o;let n=t.attachShadow({mode:"open"}),s=new CSSStyleSheet;s.replaceSync(gt),n.adoptedStyleSheets=[s],this.#e=this.#s(n),this.#n("ready")}async start(){if(this.#o!==null)return;let{mirrors:t,size_bytes:e,budget_bytes:o}=this.#t,{verdict:n,progress:s}=this.#e;this.#o=new AbortController,n.className="verdict",$(n,""),s.value=0,this.#n("running");try{let i=await this.#r({mirrors:t.map(l=>l.url),size_bytes:e,budget_bytes:o,signal:this.#o.signal,onProgress:l=>this.#a(l)});this.#i(i)}catch(i){this.#o.signal.aborted?($(n,"Cancelled."),this.#n("ready")):(n.classList.add("trouble"),$(n,i.message),this.#n("ready"))}finally{this.#o=null}}cancel(){this.#o?.abort(new DOMException("The comparison was cancelled.","AbortError"))}#s(t){let{mirrors:e,size_bytes:o,budget_bytes:n,about:s}=this.#t,i=e.length===1?"1 mirror":`${e.length} mirrors`,l=e.length===1?"":`, ${A(n*e.length)} in all`,a={box:c("section",{"aria-label":"Which mirror?"}),button:c("button",{type:"button",class:"go"},"Compare"),stop:c("button",{type:"button"},"Cancel"),progress:c("progress",{max:"1",value:"0","aria-label":"Comparison"}),turns:c("ul",{class:"turns"}),verdict:c("p",{class:"verdict",role:"status","aria-live":"polite"}),table:c("div",{class:"table"}),notes:ue(s)};return a.running=c("div",{class:"running"},c("div",{class:"bar"},a.progress,a.stop),a.turns),a.box.append(c("header",{},c("h2",{},"Which mirror?"," ",c("small",{},`for ${A(o)}`)),a.button),c("p",{class:"cost"},`Downloads up to ${A(n)} from each of ${i}${l}, to forecast how long the file will take.`),a.running,a.verdict,a.table,a.notes),t.append(a.box),a.button.addEventListener("click",()=>{this.start(),a.stop.focus()}),a.stop.addEventListener("click",()=>this.cancel()),a}#n(t){let{box:e,button:o,stop:n,running:s,table:i,notes:l}=this.#e,a=e.getRootNode().activeElement;e.dataset.state=t,o.hidden=t==="running",s.hidden=t!=="running",i.hidden=l.hidden=t!=="done",$(o,t==="done"?"Compare again":"Compare"),a===n&&t!=="running"&&o.focus()}#a({share:t,mirrors:e}){let{progress:o,turns:n}=this.#e;for(o.value=t;n.children.length<e.length;)n.append(c("li",{},vt(e[n.children.length].url),c("span")));for(let[s,{state:i,probes:l}]of e.entries()){let a=n.children[s];a.dataset.state=i;let f=l===1?"1 probe":`${l} probes`;$(a.lastChild,i==="failed"?"failed":l===0?i:f)}}#i(t){let{verdict:e,table:o}=this.#e;e.classList.add(t.verdict),o.replaceChildren(se(t,this.#t)),this.#n("done"),$(e,wt(t))}};function se(r,t){let e=le(r.mirrors),o=pt(r.mirrors.find(s=>s.goodput)?.goodput.level),n=s=>c("th",{role:"columnheader",scope:"col"},s);return c("table",{role:"table"},c("caption",{class:"unseen"},`Mirrors by forecast time to download ${A(t.size_bytes)}`),c("thead",{role:"rowgroup"},c("tr",{role:"row"},...["#","Mirror",`Forecast time, ${o} interval`,"Goodput","Round trip","Probes","Used"].map(n))),c("tbody",{role:"rowgroup"},...r.mirrors.map(s=>ae(s,r,e,t))))}function ae(r,{verdict:t,close:e},o,n){let s=(f,...u)=>c("td",{role:"cell",class:f},...u),i=r.close&&t==="close"&&1<e,l=r.rank===null?"–":i?"=1":String(r.rank),a=c("tr",{role:"row",class:r.rank===null?"failed":i?"tied":r.rank===1?"first":""},s("place",l),c("th",{role:"rowheader",scope:"row",class:"name"},ce(r,n)));if(r.rank===null){let f=s("reason",r.failure);f.colSpan=4,a.append(f)}else a.append(s("time",c("strong",{},S(r.time_s)),c("span",{class:"aside"},yt(r)),ie(r,o)),s("goodput",y(r.goodput.value,"bit/s"),xt(r.goodput,"ratio")),s("rtt",y(r.rtt?.value,"s"),xt(r.rtt,"s")),s("probes",dt(r.probes),r.failures===0?"":` (${r.failures} failed)`));return a.append(s("used",y(r.bytes,"bytes"))),a}function xt(r,t){return c("span",{class:"aside trust"},r===null?"":`error ${y(r.error,t)}, ${r.method}`)}function ie({time_s:r,lower_s:t,upper_s:e},o){let n=(l,a)=>{let f=document.createElementNS(fe,l);for(let[u,m]of Object.entries(a))f.setAttribute(u,m);return f},s=l=>`${Math.min(100,100*l/o).toFixed(2)}%`,i=n("svg",{width:"100%",height:"10","aria-hidden":"true"});if(i.append(n("line",{x1:"0",x2:"100%",y1:"5",y2:"5",class:"axis"})),t!==null){let l=Math.max(.5,100*(Math.min(o,e)-t)/o);i.append(n("rect",{x:s(t),width:`${Math.max(0,l).toFixed(2)}%`,y:"1",height:"8",class:"band"}))}return i.append(n("circle",{cx:s(r),cy:"5",r:"3.5",class:"mark"})),i}function le(r){let t=r.filter(e=>e.rank!==null).map(e=>Math.max(e.time_s*1.05,Math.min(e.upper_s??0,e.time_s*2)));return Math.max(...t,Number.MIN_VALUE)}function ce({url:r,kind:t},{file:e}){let o=vt(r);return!/^https?:/.test(r)||t==="station"&&!e?o:c("a",{href:t==="station"?new URL(e,r).href:r,rel:"noreferrer"},o)}function vt(r){let[t,...e]=F(r).split("/"),o=e.length===0?"":`/${e.join("/")}`;return c("span",{class:"mirror"},t,c("small",{},o))}function ue(r){let t=c("ul",{},...de.map(o=>c("li",{},o))),e=r===void 0?[]:[c("p",{},c("a",{href:r},"Compare mirrors of your own"))];return c("details",{},c("summary",{},"What this forecast cannot know"),t,...e)}var fe="http://www.w3.org/2000/svg",de=["It is the weather of the last seconds, carried on. A download of minutes or hours meets weather that nobody has measured.","A probe is short. Connections start slowly, and more so after each pause between rounds, so on long and fast paths a real download is quicker than the forecast; where servers throttle long downloads, it is slower. The small probes at the start are left out for that reason; a larger budget makes the probes larger.","The interval is that of one more probe: nine of ten should fall inside. Two mirrors are too close to call when the forecast of either lies within the interval of the other.","For a file on a web server the round trip is the time to its first byte, which includes the server’s own delay.","Bytes used are counted before packets’ own headers, and failed probes as if all of them had come. A server that cannot send a part of a file is broken off; what was under way by then is not counted."];var Y=document.currentScript,$t=new URL(".",Y?.src??location.href),O=ft($t);O.show=(r,t)=>new U(r,t,O);window.barographMirrors=O;Y?.dataset.mirrors!==void 0&&he(Y);function he(r){let{mirrors:t,size:e,budget:o,file:n,start:s,theme:i}=r.dataset,l=document.createElement("barograph-mirrors");r.after(l),pe(l,i);try{let a=O.show(l,{mirrors:C(t,{secure:location.protocol==="https:"}),size_bytes:V(e),budget_bytes:o===void 0?k.usual:V(o),file:n,about:new URL("mirrors.html",$t).href});s==="auto"&&a.start()}catch(a){l.textContent=`Which mirror? ${a.message}`}}function pe(r,t){let e=matchMedia("(prefers-color-scheme: dark)"),o=()=>{let n=e.matches&&getComputedStyle(r.parentElement).colorScheme.includes("dark");r.dataset.theme=t??(n?"dark":"light")};e.addEventListener("change",o),o()}})();
